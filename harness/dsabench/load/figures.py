"""Parts of a run's metrics that the whole run and its steady state have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsabench.load.latencies import gaps_s, latencies_ms
from dsabench.load.steady import Window, in_flight
from dsabench.model.record import Metric
from dsabench.model.sample import RequestSample, Times
from dsabench.stats.percentiles import percentile

QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
_STEADY = ("ttft_ms", "tpot_ms", "e2e_ms")


def distribution(name: str, values: Times) -> dict[str, Metric]:
    """Mean, least, largest, and the percentiles that there are enough values for."""
    n = len(values)
    if n == 0:
        return {}
    figures = {"mean": float(values.mean()), "min": float(values.min()), "max": float(values.max())}
    figures |= {label: p for label, q in QUANTILES.items() if (p := percentile(values, q)) is not None}
    return {f"{name}.{label}": Metric(value=value, n=n) for label, value in figures.items()}


def accept_lengths(completed: Sequence[RequestSample]) -> dict[str, Metric]:
    """Tokens per decode step, of requests whose server tells; by data-parallel rank where it tells that too.

    `mean` is over requests. `weighted` is all tokens over all steps, which is what the decode steps of the server saw:
    a request's steps are its tokens divided by its accept length.
    """
    told = [sample for sample in completed if sample.accept_length]
    if not told:
        return {}
    lengths = np.array([sample.accept_length for sample in told], np.float64)
    tokens = np.array([sample.output_tokens for sample in told], np.float64)
    metrics = {
        "accept_length.mean": Metric(value=float(lengths.mean()), n=len(told)),
        "accept_length.weighted": Metric(value=float(tokens.sum() / (tokens / lengths).sum()), n=len(told)),
    }
    ranks = np.array([-1 if sample.dp_rank is None else sample.dp_rank for sample in told])
    for rank in np.unique(ranks[ranks >= 0]).tolist():
        of_rank = lengths[ranks == rank]
        metrics[f"accept_length.dp_rank_{rank}"] = Metric(value=float(of_rank.mean()), n=len(of_rank))
    return metrics


def steady_figures(samples: Sequence[RequestSample], window: Window) -> dict[str, Metric]:
    """`steady.…`: requests count where they were sent, tokens and gaps where they arrived, completions where they ended."""
    completed = [sample for sample in samples if sample.error is None]
    sent_s, done_s = (
        np.array(column, np.float64)
        for column in ([sample.sent_s for sample in samples], [sample.done_s for sample in samples])
    )
    ended = int(window.holds(np.array([sample.done_s for sample in completed], np.float64)).sum())
    tokens = sum(int(sample.frames.tokens[window.holds(sample.frames.at_s)].sum()) for sample in completed)
    inside = [sample for sample in completed if window.start_s < sample.sent_s <= window.end_s]
    metrics = {
        "start_s": Metric(value=window.start_s, n=len(samples)),
        "duration_s": Metric(value=window.duration_s, n=len(samples)),
        "concurrency.mean": Metric(value=in_flight(window, sent_s, done_s), n=len(samples)),
        "output_throughput_tok_s": Metric(value=tokens / window.duration_s, n=ended),
        "request_throughput_req_s": Metric(value=ended / window.duration_s, n=ended),
    } | accept_lengths(inside)
    latencies = latencies_ms(inside)
    for name in _STEADY:
        metrics |= distribution(name, latencies[name])
    metrics |= distribution("itl_ms", _gaps_ms(completed, window))
    return {f"steady.{name}": metric for name, metric in metrics.items()}


def _gaps_ms(completed: Sequence[RequestSample], window: Window) -> Times:
    """Gaps that ended inside the window."""
    gaps = [
        gaps_s(sample.frames)[np.repeat(window.holds(sample.frames.at_s[1:]), sample.frames.tokens[1:])]
        for sample in completed
    ]
    return np.concatenate(gaps or [np.empty(0)]) * 1e3
