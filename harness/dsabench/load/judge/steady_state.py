"""The steady state of a run: after ramp-up, before drain, at the concurrency that was asked for.

- **Start**: the first request ended well (until then the number in flight only grows), and, in a closed loop, as many
  requests as were asked for had been in flight at once.
- **End**: the last request was sent; from then on the number in flight only falls.

Requests belong to the window that was open when they were sent; tokens and gaps to the window in which they arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dsabench.load.judge.metrics import MetricValue, accept_lengths, distribution, gaps_s, latencies_ms
from dsabench.model.sample import RequestSample, Times

Flags = npt.NDArray[np.bool_]

REQUESTS_MIN = 10
"""Fewest completed requests sent inside the window; as many as a median takes."""
FULL_SHARE_MIN = 0.9
"""A closed loop must hold at least this share of the asked concurrency, on average over the window."""
GROWTH_MAX = 1.5
"""How much more may be in flight in one half of the window than in the other. Beyond it, and by more than two
requests, the queue was filling or emptying all along: an overload or a ramp, but no steady state."""
_IN_WINDOW = ("ttft_ms", "tpot_ms", "e2e_ms")


class SteadyWindow(NamedTuple):
    """Seconds on the measurement's clock."""

    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """Its length."""
        return self.end_s - self.start_s

    def holds(self, at_s: Times) -> Flags:
        """Which of these moments lie inside: start excluded, end included."""
        return (at_s > self.start_s) & (at_s <= self.end_s)


class LoadShape(Protocol):
    """What decides where the window lies: of a workload, or of a command line."""

    @property
    def is_paced_by_data(self) -> bool:
        """Whether the data say when each request is sent."""

    @property
    def arrivals(self) -> str:
        """Its kind."""

    @property
    def request_rate(self) -> float | None:
        """Per second; None for a closed loop."""

    @property
    def max_concurrency(self) -> int | None:
        """Slots; None for no limit."""


class NoSteadyState(NamedTuple):
    """There is no such window."""

    reason: str


def steady_window(samples: Sequence[RequestSample], asked: LoadShape) -> SteadyWindow | NoSteadyState:
    """The window, or why there is none. Failed requests were in flight too; those inside it do not count as requests."""
    if len(samples) < REQUESTS_MIN:
        return NoSteadyState(f"{len(samples)} requests are too few; it takes {REQUESTS_MIN} inside the window")
    if asked.request_rate is not None and asked.arrivals == "ramp":
        return NoSteadyState("a ramp changes its rate all along")
    sent_s, done_s = (
        np.array(column, np.float64)
        for column in ([sample.sent_s for sample in samples], [sample.done_s for sample in samples])
    )
    completed = np.array([sample.error is None for sample in samples])
    if not completed.any():
        return NoSteadyState("no request ended well")
    start_s = float(done_s[completed].min())
    slots = asked.max_concurrency if _is_closed(asked) else None
    if slots is not None:
        full_s = _reaches(sent_s, done_s, slots)
        if full_s is None:
            return NoSteadyState(f"there were never {slots} requests in flight")
        start_s = max(start_s, full_s)
    window = SteadyWindow(start_s, float(sent_s.max()))
    if window.duration_s <= 0.0:
        return NoSteadyState("the last request was sent before the first one ended: ramp-up went over into drain")
    return _unsteady(window, sent_s, done_s, completed, slots) or window


def in_flight(window: SteadyWindow, sent_s: Times, done_s: Times) -> float:
    """Requests in flight, averaged over the window."""
    inside_s = np.minimum(done_s, window.end_s) - np.maximum(sent_s, window.start_s)
    return float(np.maximum(inside_s, 0.0).sum() / window.duration_s)


def _unsteady(
    window: SteadyWindow, sent_s: Times, done_s: Times, completed: Flags, slots: int | None
) -> NoSteadyState | None:
    inside = window.holds(sent_s) & completed
    if (n := int(inside.sum())) < REQUESTS_MIN:
        return NoSteadyState(f"{n} requests were sent between ramp-up and drain; it takes {REQUESTS_MIN}")
    typical_s = float(np.percentile((done_s - sent_s)[inside], 50))
    if window.duration_s < typical_s:
        return NoSteadyState(f"it would last {window.duration_s:.3g} s, and a request takes {typical_s:.3g} s")
    held = in_flight(window, sent_s, done_s)
    if slots is not None and held < FULL_SHARE_MIN * slots:
        return NoSteadyState(f"only {held:.3g} of {slots} requests were in flight, averaged over the window")
    middle_s = (window.start_s + window.end_s) / 2
    halves = [in_flight(SteadyWindow(*ends), sent_s, done_s) for ends in ((window[0], middle_s), (middle_s, window[1]))]
    few, many = sorted(halves)
    if many > GROWTH_MAX * few and many - few > 2:
        return NoSteadyState(
            f"the requests in flight went from {halves[0]:.3g} to {halves[1]:.3g}, averaged over its halves"
        )
    return None


def _is_closed(asked: LoadShape) -> bool:
    """Whether a request is sent as soon as another ends; a trace brings its own times."""
    return asked.request_rate is None and not asked.is_paced_by_data


def _reaches(sent_s: Times, done_s: Times, slots: int) -> float | None:
    """When that many requests were first in flight at once."""
    at_s = np.concatenate([sent_s, done_s])
    step = np.concatenate([np.ones(len(sent_s), np.int64), -np.ones(len(done_s), np.int64)])
    order = np.lexsort((step, at_s))  # at the same moment one ends before the next begins
    reached = np.flatnonzero(np.cumsum(step[order]) >= slots)
    return float(at_s[order][reached[0]]) if len(reached) else None


def steady_metrics(samples: Sequence[RequestSample], window: SteadyWindow) -> dict[str, MetricValue]:
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
        "start_s": MetricValue(value=window.start_s, n=len(samples)),
        "duration_s": MetricValue(value=window.duration_s, n=len(samples)),
        "concurrency.mean": MetricValue(value=in_flight(window, sent_s, done_s), n=len(samples)),
        "output_throughput_tok_s": MetricValue(value=tokens / window.duration_s, n=ended),
        "request_throughput_req_s": MetricValue(value=ended / window.duration_s, n=ended),
    } | accept_lengths(inside)
    latencies = latencies_ms(inside)
    for name in _IN_WINDOW:
        metrics |= distribution(name, latencies[name])
    metrics |= distribution("itl_ms", _gaps_ms(completed, window))
    return {f"steady.{name}": metric for name, metric in metrics.items()}


def _gaps_ms(completed: Sequence[RequestSample], window: SteadyWindow) -> Times:
    """Gaps that ended inside the window."""
    gaps = [
        gaps_s(sample.frames)[np.repeat(window.holds(sample.frames.at_s[1:]), sample.frames.tokens[1:])]
        for sample in completed
    ]
    return np.concatenate(gaps or [np.empty(0)]) * 1e3
