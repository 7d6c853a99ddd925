"""`dsabench kernels layer`: dense attention of a layer against sparse, as sums of kernel times."""

from __future__ import annotations

import json
from pathlib import Path

from dsabench.errors import InputError
from dsabench.microbench.measured import latest
from dsabench.microbench.table import read_points
from dsabench.reporting.prefill_sum import LayerTimes, layer_times

_ALWAYS, _NEVER = 1 << 40, 0
"""Thresholds."""


def show_layer(results: Path, model: str, heads: int, *, as_json: bool) -> None:
    """A line for every number of new and cached tokens that dense attention was timed at."""
    layers = layer_times(latest(read_points(results)).values(), model, heads)
    steps = [
        (new, cached)
        for (op, _, new), curve in sorted(layers.curves.items())
        if op == "dense_prefill"
        for cached, _ in curve
    ]
    if not steps:
        raise InputError(f"{results}: no times of dense_prefill for {model} with {heads} heads on the rank")
    rows = [_row(layers, step) for step in steps]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'new':>6}{'cached':>8}{'dense µs':>10}{'sparse µs':>11}  faster")
    for row in rows:
        print(
            f"{row['new_tokens']:6}{row['cached_tokens']:8}{row['dense_us']:10.0f}{row['sparse_us']:11.0f}  "
            f"{row['faster']}, {row['lead']:.0%}"
        )


def _row(layers: LayerTimes, step: tuple[int, int]) -> dict[str, float | str]:
    dense = layers.step_us("flashmla_kv", _ALWAYS, step)
    sparse = min(layers.step_us(backend, _NEVER, step) for backend in ("flashmla_sparse", "flashmla_kv"))
    return {
        "new_tokens": step[0],
        "cached_tokens": step[1],
        "dense_us": dense,
        "sparse_us": sparse,
        "faster": "dense" if dense < sparse else "sparse",
        "lead": max(dense, sparse) / min(dense, sparse) - 1,
    }
