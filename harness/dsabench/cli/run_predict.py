"""`dsabench kernels predict`: server times, what the kernels sum up to, and how far apart they are."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from dsabench.errors import InputError
from dsabench.microbench.measured import latest
from dsabench.microbench.table import read_points
from dsabench.model.prefill_time import PrefillTime
from dsabench.reporting.prefill_sum import Predicted, Series, predict_series
from dsabench.store.prefill_times import read_prefill_times

_WITHIN = 0.10


def predict_prefill(files: Sequence[Path], results: Path, *, as_json: bool) -> None:
    """Print every series."""
    measurements = list(latest(read_points(results)).values())
    if not measurements:
        raise InputError(f"{results}: no kernel times; run `dsabench kernels bench` first")
    by_series: dict[str, list[PrefillTime]] = defaultdict(list)
    for file in files:
        for time in read_prefill_times(file):
            by_series[time.series].append(time)
    found = [predict_series(times, measurements) for times in by_series.values()]
    if as_json:
        print(json.dumps([_plain(series) for series in found], indent=1))
        return
    for series in found:
        _print(series)


def _plain(series: Series) -> dict[str, object]:
    rest = series.rest
    return {
        "series": series.name,
        "constant_ms": rest.constant_ms,
        "rest_us_per_token": rest.per_token_us,
        "wait_ms": rest.wait_ms,
        "median_error": series.median_error,
        "largest_error": _worst(series).error,
        "points": [
            p.time.model_dump(mode="json", include=_SHOWN)
            | {"kernels_ms": p.kernels_ms, "predicted_ms": p.predicted_ms, "error": p.error, "is_fitted": p.is_fitted}
            for p in series.points
        ],
    }


_SHOWN = {"prefill_backend", "mha_threshold_tokens", "chunk_tokens", "cached_tokens", "new_tokens", "ms"}


def _print(series: Series) -> None:
    rest = series.rest
    print(f"{series.name}: {len(series.points)} times, {len(rest.of)} of them taken for the rest (*)")
    print(
        f"rest of the server: {rest.constant_ms:.1f} ms a prompt + {rest.per_token_us:.1f} µs a new token; "
        f"a step takes {rest.wait_ms:.1f} ms or more"
    )
    print(
        f"{'kernel':16}{'threshold':>9}{'chunk':>7}{'cached':>8}{'new':>7}{'server ms':>11}{'kernels':>9}{'sum':>9}  error"
    )
    for p in series.points:
        t = p.time
        mark = " *" if p.is_fitted else ""
        print(
            f"{t.prefill_backend:16}{t.mha_threshold_tokens:9}{t.chunk_tokens:7}{t.cached_tokens:8}{t.new_tokens:7}"
            f"{t.ms:11.1f}{p.kernels_ms:9.1f}{p.predicted_ms:9.1f} {p.error:+6.1%}{mark}"
        )
    judged, worst = series.judged, _worst(series)
    within = sum(abs(p.error) <= _WITHIN for p in judged)
    print(
        f"{within} of {len(judged)} predicted within {_WITHIN:.0%}; error: median {series.median_error:.1%}, worst "
        f"{worst.error:+.1%} ({worst.time.cached_tokens} cached, {worst.time.new_tokens} new, {worst.time.prefill_backend})"
    )
    _print_differences(series)
    print()


def _print_differences(series: Series) -> None:
    """The choice of the kernel by itself: the rest falls out of a difference."""
    at = {
        (p.time.mha_threshold_tokens, p.time.chunk_tokens, p.time.cached_tokens, p.time.new_tokens): p
        for p in _kv(series)
    }
    for p in series.points:
        t = p.time
        other = at.get((t.mha_threshold_tokens, t.chunk_tokens, t.cached_tokens, t.new_tokens))
        if t.prefill_backend == "flashmla_sparse" and other and other.kernels_ms != p.kernels_ms:
            print(
                f"flashmla_kv less flashmla_sparse, {t.cached_tokens} cached + {t.new_tokens} new, chunk {t.chunk_tokens}: "
                f"server {other.time.ms - t.ms:+.1f} ms, kernels {other.kernels_ms - p.kernels_ms:+.1f} ms"
            )


def _kv(series: Series) -> list[Predicted]:
    return [p for p in series.points if p.time.prefill_backend == "flashmla_kv"]


def _worst(series: Series) -> Predicted:
    return max(series.judged, key=lambda p: abs(p.error))
