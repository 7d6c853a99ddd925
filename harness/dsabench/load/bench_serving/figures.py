"""bench_serving's `calculate_metrics` (serving.py:1085-1299) and `calculate_goodput` (goodput.py), over columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dsabench.load.bench_serving.answers import Answers, Floats, Ints


class Spread(NamedTuple):
    """Of one latency, milliseconds; zeros where nothing was observed, as bench_serving has it."""

    mean: float
    median: float
    std: float
    p90: float
    p95: float
    p99: float
    max: float


class Figures(NamedTuple):
    """Everything that bench_serving reports of a run. Throughputs are per second."""

    completed: int
    total_input: int
    total_output: int
    total_output_retokenized: int
    request_throughput: float
    input_throughput: float
    output_throughput: float
    total_throughput: float
    ttft: Spread
    tpot: Spread
    itl: Spread
    e2e: Spread
    concurrency: float
    max_output_tokens_per_s: float
    max_concurrent_requests: int


class Goodput(NamedTuple):
    """Requests that met every SLO; the fields are the keys of the record."""

    goodput_slos_ms: dict[str, float]
    request_goodput: float
    slo_attainment: float
    slo_attainment_by_metric: dict[str, float]


def compute_figures(
    answers: Answers, duration_s: float, *, input_lens: Ints, retokenized: Ints, gaps_s: Floats | None = None
) -> Figures:
    """Figures of one run.

    `input_lens` [n] is the dataset's count, `retokenized` [n] the tokens of the text that came back; rows of failed
    requests are ignored. `gaps_s` replaces the answers' gaps where they are split by retokenised text.
    """
    ok = answers.ok
    completed = int(ok.sum())
    total_input, total_output = int(input_lens[ok].sum()), int(answers.output_len[ok].sum())
    latency_s = answers.latency_s[ok]
    peak_tokens, peak_requests = _peaks(answers)
    return Figures(
        completed=completed,
        total_input=total_input,
        total_output=total_output,
        total_output_retokenized=int(retokenized[ok].sum()),
        request_throughput=completed / duration_s,
        input_throughput=total_input / duration_s,
        output_throughput=total_output / duration_s,
        total_throughput=(total_input + total_output) / duration_s,
        ttft=_spread_ms(answers.ttft_s[ok]),
        tpot=_spread_ms(_tpots_s(answers)[ok & (answers.output_len > 1)]),
        itl=_spread_ms(answers.gaps_s if gaps_s is None else gaps_s),
        e2e=_spread_ms(latency_s),
        concurrency=float(np.sum(latency_s) / duration_s),
        max_output_tokens_per_s=peak_tokens,
        max_concurrent_requests=peak_requests,
    )


def compute_goodput(answers: Answers, slos_ms: Mapping[str, float], duration_s: float) -> Goodput:
    """Shares are of all requests sent; the TPOT of a single-token answer counts as 0."""
    observed_ms = {
        "ttft": answers.ttft_s * 1000,
        "tpot": np.where(answers.output_len > 1, _tpots_s(answers), 0.0) * 1000,
        "e2el": answers.latency_s * 1000,
    }
    met = {name: answers.ok & (observed_ms[name] <= slo_ms) for name, slo_ms in slos_ms.items()}
    good = int(np.logical_and.reduce(list(met.values())).sum())
    sent = len(answers.ok)
    return Goodput(
        goodput_slos_ms=dict(slos_ms),
        request_goodput=good / duration_s,
        slo_attainment=good / sent,
        slo_attainment_by_metric={name: int(values.sum()) / sent for name, values in met.items()},
    )


def split_by_text(answers: Answers, chunk_tokens: Sequence[int]) -> Floats:
    """Gaps of an OpenAI stream under speculative decoding: each split by the tokens of its text (serving.py:1141-1150).

    `chunk_tokens` [g]; a chunk without tokens gives no gap (bench_serving divides by zero there).
    """
    counts = np.asarray(chunk_tokens, np.int64)
    return np.repeat(answers.gaps_s / np.maximum(counts, 1), counts)


def _tpots_s(answers: Answers) -> Floats:
    return (answers.latency_s - answers.ttft_s) / np.maximum(answers.output_len - 1, 1)


def _spread_ms(values_s: Floats) -> Spread:
    if not len(values_s):
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    p50, p90, p95, p99 = np.percentile(values_s, [50, 90, 95, 99])  # np.median would import numpy.ma: 20 ms
    figures = (np.mean(values_s), p50, np.std(values_s), p90, p95, p99, np.max(values_s))
    return Spread(*(float(value * 1000) for value in figures))


def _peaks(answers: Answers) -> tuple[float, int]:
    """Most tokens and most requests in one second, seconds counted from the first request's start.

    A first frame counts as one token whatever it brought; requests are in every second that they touch.
    """
    ok = answers.ok
    if not ok.any():
        return 0.0, 0
    start_s, latency_s, counts = answers.start_s[ok], answers.latency_s[ok], answers.gap_counts[ok]
    begin_s = start_s.min()
    seconds = int(np.ceil((start_s + latency_s).max() - begin_s)) + 1
    first_s = start_s + answers.ttft_s[ok]
    sums = np.cumsum(answers.gaps_s)
    before = np.concatenate(([0.0], sums))[np.cumsum(counts) - counts]
    later_s = sums + np.repeat(first_s - before, counts)
    buckets = (np.concatenate((first_s, later_s)) - begin_s).astype(np.int64)
    tokens = np.bincount(buckets[(buckets >= 0) & (buckets < seconds)], minlength=1)
    changes = np.bincount((start_s - begin_s).astype(np.int64), minlength=seconds + 2)
    changes -= np.bincount(((start_s + latency_s) - begin_s).astype(np.int64) + 1, minlength=seconds + 2)
    return float(tokens.max()), int(np.cumsum(changes)[:seconds].max())
