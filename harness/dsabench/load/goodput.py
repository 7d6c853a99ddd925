"""Goodput: requests that met every limit of the SLO (bench_serving's rule, sglang 0.5.23 benchmark/goodput.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dsabench.load.latencies import gaps_s
from dsabench.model.record import Metric
from dsabench.model.sample import RequestSample, Times
from dsabench.model.workload import Slo
from dsabench.stats.intervals import wilson

Met = npt.NDArray[np.bool_]


def goodput(samples: Sequence[RequestSample], slo: Slo, duration_s: float) -> dict[str, Metric]:
    """`goodput_req_s`, `slo_attainment` and `slo_attainment.LATENCY`, with Wilson's 95 % interval.

    Shares are of all requests sent: one that failed met nothing. The interval takes requests as independent, so it
    holds for this boot; between boots see the comparison.
    """
    completed = [sample for sample in samples if sample.error is None]
    observed = per_request_ms(completed)
    met = {name: observed[name] <= limit for name, limit in slo.limits_ms.items()}
    every: Met = np.logical_and.reduce(list(met.values())) if completed else np.empty(0, np.bool_)
    share = _share(int(every.sum()), len(samples))
    if share is None:
        return {}
    rate = len(samples) / duration_s
    low, high = (None if end is None else end * rate for end in (share.ci_low, share.ci_high))
    return {
        "goodput_req_s": Metric(value=share.value * rate, n=share.n, ci_low=low, ci_high=high),
        "slo_attainment": share,
        **{
            f"slo_attainment.{name}": one
            for name, of_one in met.items()
            if (one := _share(int(of_one.sum()), len(samples))) is not None
        },
    }


def per_request_ms(samples: Sequence[RequestSample]) -> dict[str, Times]:
    """Latency → one value per completed request; 0 where an answer is too short to have it. `itl_ms` is the largest gap."""
    scheduled_s, sent_s, first_s, done_s = (
        np.array(column, np.float64)
        for column in (
            [sample.scheduled_s for sample in samples],
            [sample.sent_s for sample in samples],
            [sample.frames.at_s[0] for sample in samples],
            [sample.done_s for sample in samples],
        )
    )
    later_tokens = np.array([sample.output_tokens - 1 for sample in samples], np.int64)
    tpot_s = np.where(later_tokens > 0, (done_s - first_s) / np.maximum(later_tokens, 1), 0.0)
    largest_gap_s = np.array([gaps_s(sample.frames).max(initial=0.0) for sample in samples], np.float64)
    return {
        "ttft_ms": (first_s - sent_s) * 1e3,
        "tpot_ms": tpot_s * 1e3,
        "itl_ms": largest_gap_s * 1e3,
        "e2e_ms": (done_s - sent_s) * 1e3,
        "ttft_from_schedule_ms": (first_s - scheduled_s) * 1e3,
        "e2e_from_schedule_ms": (done_s - scheduled_s) * 1e3,
    }


def _share(hits: int, n: int) -> Metric | None:
    interval = wilson(hits, n)
    return None if interval is None else Metric(value=hits / n, n=n, ci_low=interval.low, ci_high=interval.high)
