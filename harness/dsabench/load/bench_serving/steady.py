"""What bench_serving does not print: the same latencies and throughput between ramp-up and drain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dsabench.load.bench_serving.answers import Answers, Floats
from dsabench.load.judge.steady_state import NoSteadyState, in_flight, steady_window
from dsabench.model.sample import RequestSample
from dsabench.stats.percentiles import percentile

_WIDTH = 50
_SHOWN = {
    "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e_latency": "E2E Latency", "queue_wait": "Queue Wait",
}  # fmt: skip


class Pattern(NamedTuple):
    """How requests were sent, as the flags say it."""

    dataset: str
    arrivals: str
    request_rate: float | None
    max_concurrency: int | None


class Tail(NamedTuple):
    """Of one latency, milliseconds; None from too few observations."""

    mean: float | None
    median: float | None
    p99: float | None


class Steady(NamedTuple):
    """Requests count where they were sent, tokens and gaps where they arrived, completions where they ended."""

    start_s: float
    duration_s: float
    completed: int
    concurrency: float
    request_throughput: float
    output_throughput: float
    latencies: dict[str, Tail]

    def as_json(self) -> dict[str, float | int | None]:
        """The record's `steady_state`."""
        figures = self._asdict()
        del figures["latencies"]
        return figures | told(self.latencies)


def told(latencies: Mapping[str, Tail]) -> dict[str, float | None]:
    """As keys of the record."""
    return {f"{key}_{name}_ms": ms for name, tail in latencies.items() for key, ms in tail._asdict().items()}


def tail_lines(latencies: Mapping[str, Tail]) -> Iterator[str]:
    """As lines of a block, less those with too few observations."""
    for name, tail in latencies.items():
        for label, ms in zip(("Mean", "Median", "P99"), tail, strict=True):
            if ms is not None:
                yield f"{f'{label} {_SHOWN[name]} (ms):':<40} {ms:<10.2f}"


def steady_of(answers: Answers, samples: Sequence[RequestSample], pattern: Pattern) -> Steady | NoSteadyState:
    """The figures, or why there is no steady state."""
    window = steady_window(samples, pattern)
    if isinstance(window, NoSteadyState):
        return window
    start_s, done_s, ok = answers.start_s, answers.start_s + answers.latency_s, answers.ok
    first_s = start_s + answers.ttft_s
    sent = ok & window.holds(start_s)
    several = sent & (answers.output_len > 1)
    later = window.holds(answers.gap_ends_s)
    openings = np.fromiter((s.frames.tokens.item(0) if len(s.frames) else 0 for s in samples), np.int64, len(samples))
    tokens = int(later.sum()) + int(openings[ok & window.holds(first_s)].sum())
    ended = int((ok & window.holds(done_s)).sum())
    sent_s, left_s = (
        np.array(column, np.float64) for column in zip(*((s.sent_s, s.done_s) for s in samples), strict=True)
    )
    return Steady(
        start_s=window.start_s,
        duration_s=window.duration_s,
        completed=ended,
        concurrency=in_flight(window, sent_s, left_s),
        request_throughput=ended / window.duration_s,
        output_throughput=tokens / window.duration_s,
        latencies={
            "ttft": tail_of(answers.ttft_s[sent]),
            "tpot": tail_of((done_s - first_s)[several] / (answers.output_len[several] - 1)),
            "itl": tail_of(answers.gaps_s[later]),
            "e2e_latency": tail_of(answers.latency_s[sent]),
        },
    )


def steady_lines(steady: Steady | NoSteadyState) -> Iterator[str]:
    """A block of its own, in the form of the one before it."""
    yield f"{' Steady State ':=^{_WIDTH}}"
    if isinstance(steady, NoSteadyState):
        yield f"none: {steady.reason}"
    else:
        yield f"{'From, for (s):':<40} {steady.start_s:.2f}, {steady.duration_s:.2f}"
        yield f"{'Concurrency:':<40} {steady.concurrency:<10.2f}"
        yield f"{'Request throughput (req/s):':<40} {steady.request_throughput:<10.2f}"
        yield f"{'Output token throughput (tok/s):':<40} {steady.output_throughput:<10.2f}"
        yield from tail_lines(steady.latencies)
    yield "=" * _WIDTH


def tail_of(values_s: Floats) -> Tail:
    """Of values in seconds."""
    mean_ms = float(values_s.mean()) * 1e3 if len(values_s) else None
    median_s, p99_s = percentile(values_s, 0.5), percentile(values_s, 0.99)
    return Tail(mean_ms, None if median_s is None else median_s * 1e3, None if p99_s is None else p99_s * 1e3)
