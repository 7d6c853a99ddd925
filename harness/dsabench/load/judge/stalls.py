"""Stretches of a run in which the whole server stood still: requests in flight, and no token from any stream.

A server that compiles a kernel, collects garbage or waits for a lost rank answers nobody for seconds. Medians of
latencies do not show it, a rate over a run of seconds is made of it. Imports no pydantic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dsabench.model.sample import RequestSample, Times

STANDSTILL_S = 1.0
"""A shorter silence is none: prefill of other prompts holds decoding up for hundreds of milliseconds."""
BEYOND_USUAL = 5.0
"""How much longer than usual for the requests in flight it must be: a long prompt alone is silence, too."""
USUAL_QUANTILE = 0.25
"""Of the run's times to the first token per prompt token: a stall may hit most requests of a short run."""


class ServerStall(NamedTuple):
    """Seconds on the measurement's clock."""

    start_s: float
    end_s: float
    in_flight: int
    """Requests that had been sent before it ended and got nothing in it."""

    @property
    def duration_s(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


def server_stalls(samples: Sequence[RequestSample]) -> tuple[ServerStall, ...]:
    """All of them, in the order of time; none where most answers come in one piece: that says nothing of their tokens."""
    if 2 * sum(_is_one_piece(sample) for sample in samples) >= len(samples):
        return ()
    sent_s = np.array([sample.sent_s for sample in samples], np.float64)
    done_s = np.array([sample.done_s for sample in samples], np.float64)
    signs_s = np.sort(np.concatenate([[float(sent_s.min())], done_s, *(sample.frames.at_s for sample in samples)]))
    usual_s = _usual_first_token_s(samples)
    return tuple(
        found
        for before_s, after_s in _silences(signs_s)
        if (found := _between(before_s, after_s, sent_s, done_s)) is not None
        and found.duration_s > BEYOND_USUAL * _usual_silence_s(found, samples, usual_s)
    )


def stall_warnings(samples: Sequence[RequestSample], client_lag_max_ms: float) -> Iterator[str]:
    """One line for all of them. `client_lag_max_ms`: how late the load generator's own event loop ever was."""
    found = server_stalls(samples)
    if not found:
        return
    longest = max(found, key=lambda one: one.duration_s)
    who = "the server"
    if client_lag_max_ms / 1e3 > longest.duration_s / 2:
        who = "the load generator (or the whole machine)"
    often = "" if len(found) == 1 else f"{len(found)} times, {sum(one.duration_s for one in found):.1f} s in all; "
    yield (
        f"{who} stood still: {often}no token from any stream for {longest.duration_s:.1f} s, from "
        f"{longest.start_s:.1f} to {longest.end_s:.1f} s of the run, with {longest.in_flight} in flight; rates and means "
        "count it (often a kernel that no rehearsal had met was compiled, or others held the cores: measure again)"
    )


def _is_one_piece(sample: RequestSample) -> bool:
    return len(sample.frames) == 1 and sample.frames.tokens.item(0) > 1


def _silences(signs_s: Times) -> Iterator[tuple[float, float]]:
    gaps_s = np.diff(signs_s)
    for place in np.flatnonzero(gaps_s > STANDSTILL_S).tolist():
        yield signs_s.item(place), signs_s.item(place + 1)


def _between(before_s: float, after_s: float, sent_s: Times, done_s: Times) -> ServerStall | None:
    """From when a request was in flight. All ends are signs, so those in flight before are so until the next sign."""
    waiting = (sent_s < after_s) & (done_s >= after_s)
    if not waiting.any():
        return None
    start_s = max(before_s, float(sent_s[waiting].min()))
    return ServerStall(start_s, after_s, int(waiting.sum())) if after_s - start_s > STANDSTILL_S else None


def _usual_first_token_s(samples: Sequence[RequestSample]) -> float:
    """Seconds per prompt token; infinite where no request has any."""
    each = [
        (sample.frames.at_s.item(0) - sample.sent_s) / tokens
        for sample in samples
        if len(sample.frames) and (tokens := _prefilled(sample))
    ]
    return float(np.quantile(each, USUAL_QUANTILE)) if each else float("inf")


def _prefilled(sample: RequestSample) -> int:
    return max(1, sample.input_len - (sample.cached_tokens or 0))


def _usual_silence_s(found: ServerStall, samples: Sequence[RequestSample], per_token_s: float) -> float:
    """Of those in flight the longest: to a first token as the prompt is long, between two frames the median gap."""
    usual_s = 0.0
    for sample in samples:
        if sample.sent_s >= found.end_s or sample.done_s < found.end_s:
            continue
        at_s = sample.frames.at_s
        if len(at_s) > 1 and at_s.item(0) <= found.start_s:
            usual_s = max(usual_s, float(np.median(np.diff(at_s))))
        elif not len(at_s) or at_s.item(0) >= found.end_s:
            usual_s = max(usual_s, per_token_s * _prefilled(sample))
    return usual_s
