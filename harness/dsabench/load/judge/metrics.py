"""TTFT, TPOT, ITL, goodput, accept length and throughput of a run, each with its n.

The formulas are bench_serving's (sglang 0.5.23 benchmark/serving.py and goodput.py). Imports no pydantic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from dsabench.model.sample import Frames, RequestSample, Times
from dsabench.stats.percentiles import percentile

if TYPE_CHECKING:  # a load test from the command line has no workload, and pydantic costs 100 ms
    from dsabench.model.workload import Slo


QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
Met = npt.NDArray[np.bool_]


class MetricValue(NamedTuple):
    """A number and how many observations are behind it. `model.record.Metric` is its form in a record."""

    value: float
    n: int
    ci_low: float | None = None
    ci_high: float | None = None


def latencies_ms(samples: Sequence[RequestSample]) -> dict[str, Times]:
    """Name → values of all requests given, which must have ended well; milliseconds.

    - ttft: first token − sent. e2e: last byte − sent, where `[DONE]` is the last.
    - tpot: (e2e − ttft) / (tokens after the first event), only of requests that have any. bench_serving divides by the
      tokens less one, which makes it smaller where the first event brings several.
    - itl: a frame of k tokens gives k gaps of a k-th of its distance to the frame before; the first frame gives none.
    - …_from_schedule: counted from when the request was due, so that waiting for the server to take it counts.
    - queue_wait: sent − scheduled.
    """
    scheduled_s = np.array([sample.scheduled_s for sample in samples], np.float64)
    sent_s = np.array([sample.sent_s for sample in samples], np.float64)
    first_s = np.array([sample.frames.at_s[0] for sample in samples], np.float64)
    done_s = np.array([sample.done_s for sample in samples], np.float64)
    tokens = np.array([sample.output_tokens for sample in samples], np.int64)
    later = tokens - np.array([sample.frames.tokens[0] for sample in samples], np.int64)
    several = later > 0
    return {
        "ttft_ms": (first_s - sent_s) * 1e3,
        "tpot_ms": (done_s - first_s)[several] * 1e3 / later[several],
        "itl_ms": np.concatenate([gaps_s(sample.frames) for sample in samples] or [np.empty(0)]) * 1e3,
        "e2e_ms": (done_s - sent_s) * 1e3,
        "ttft_from_schedule_ms": (first_s - scheduled_s) * 1e3,
        "e2e_from_schedule_ms": (done_s - scheduled_s) * 1e3,
        "queue_wait_ms": (sent_s - scheduled_s) * 1e3,
    }


def gaps_s(frames: Frames) -> Times:
    """Gaps between consecutive tokens, seconds; as many as there are tokens after the first frame."""
    later = frames.tokens[1:]
    return np.repeat(np.diff(frames.at_s) / later, later)


def distribution(name: str, values: Times) -> dict[str, MetricValue]:
    """Mean, least, largest, and the percentiles that there are enough values for."""
    n = len(values)
    if n == 0:
        return {}
    figures = {"mean": float(values.mean()), "min": float(values.min()), "max": float(values.max())}
    figures |= {label: p for label, q in QUANTILES.items() if (p := percentile(values, q)) is not None}
    return {f"{name}.{label}": MetricValue(value=value, n=n) for label, value in figures.items()}


def mean_accept_length(lengths: Times, tokens: Times) -> dict[str, MetricValue]:
    """Of one or more requests, the tokens of each and its tokens per decode step.

    `mean` is over requests. `weighted` is all tokens over all steps, which is what the decode steps of the server saw:
    a request's steps are its tokens divided by its accept length.
    """
    n = len(lengths)
    return {
        "accept_length.mean": MetricValue(value=float(lengths.mean()), n=n),
        "accept_length.weighted": MetricValue(value=float(tokens.sum() / (tokens / lengths).sum()), n=n),
    }


def accept_lengths(completed: Sequence[RequestSample]) -> dict[str, MetricValue]:
    """Tokens per decode step, of requests whose server tells; by data-parallel rank where it tells that too."""
    told = [sample for sample in completed if sample.accept_length]
    if not told:
        return {}
    lengths = np.array([sample.accept_length for sample in told], np.float64)
    metrics = mean_accept_length(lengths, np.array([sample.output_tokens for sample in told], np.float64))
    ranks = np.array([-1 if sample.dp_rank is None else sample.dp_rank for sample in told])
    for rank in np.unique(ranks[ranks >= 0]).tolist():
        of_rank = lengths[ranks == rank]
        metrics[f"accept_length.dp_rank_{rank}"] = MetricValue(value=float(of_rank.mean()), n=len(of_rank))
    return metrics


def goodput(samples: Sequence[RequestSample], slo: Slo, duration_s: float) -> dict[str, MetricValue]:
    """`goodput_req_s`, `slo_attainment` and `slo_attainment.LATENCY`, with Wilson's 95 % interval.

    Shares are of all requests sent: one that failed met nothing. A share that hangs on a latency which was not observed
    of some answer is not given. The interval takes requests as independent, so it holds for this boot; between boots see
    the comparison.
    """
    completed = [sample for sample in samples if sample.error is None]
    limited = {name: (per_request_ms(completed)[name], limit) for name, limit in slo.limits_ms.items()}
    met = {name: values <= limit for name, (values, limit) in limited.items() if not np.isnan(values).any()}
    every: Met = np.logical_and.reduce(list(met.values())) if completed and met else np.empty(0, np.bool_)
    share = _share(int(every.sum()), len(samples))
    by_latency = {
        f"slo_attainment.{name}": one
        for name, of_one in met.items()
        if (one := _share(int(of_one.sum()), len(samples))) is not None
    }
    if share is None or len(met) < len(limited):
        return by_latency
    rate = len(samples) / duration_s
    low, high = (None if end is None else end * rate for end in (share.ci_low, share.ci_high))
    rates = MetricValue(value=share.value * rate, n=share.n, ci_low=low, ci_high=high)
    return {"goodput_req_s": rates, "slo_attainment": share, **by_latency}


def per_request_ms(samples: Sequence[RequestSample]) -> dict[str, Times]:
    """Latency → one value per completed request. `itl_ms` is the largest gap.

    TPOT and gaps of an answer of one token are 0: it has none. Where several tokens came in one event they were not
    observed: NaN.
    """
    scheduled_s, sent_s, first_s, done_s = (
        np.array(column, np.float64)
        for column in (
            [sample.scheduled_s for sample in samples],
            [sample.sent_s for sample in samples],
            [sample.frames.at_s[0] for sample in samples],
            [sample.done_s for sample in samples],
        )
    )
    tokens = np.array([sample.output_tokens for sample in samples], np.int64)
    later = tokens - np.array([sample.frames.tokens[0] for sample in samples], np.int64)
    none = np.where(tokens > 1, np.nan, 0.0)
    tpot_s = np.where(later > 0, (done_s - first_s) / np.maximum(later, 1), none)
    gaps = np.array([gaps_s(sample.frames).max(initial=0.0) for sample in samples], np.float64)
    largest_gap_s = np.where(later > 0, gaps, none)
    return {
        "ttft_ms": (first_s - sent_s) * 1e3,
        "tpot_ms": tpot_s * 1e3,
        "itl_ms": largest_gap_s * 1e3,
        "e2e_ms": (done_s - sent_s) * 1e3,
        "ttft_from_schedule_ms": (first_s - scheduled_s) * 1e3,
        "e2e_from_schedule_ms": (done_s - scheduled_s) * 1e3,
    }


def _share(hits: int, n: int) -> MetricValue | None:
    from dsabench.stats.intervals import wilson  # noqa: PLC0415  (scipy costs 100 ms that few load tests need)

    interval = wilson(hits, n)
    return None if interval is None else MetricValue(value=hits / n, n=n, ci_low=interval.low, ci_high=interval.high)
