"""What is sent when: the values that describe one run of the load generator before its clock starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Keep `slots` requests in flight until all are sent. A request is due when its slot becomes free."""

    slots: int


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Send request i at `due_s[i]` (seconds after the start, ascending), with at most `limit` in flight.

    One that finds no slot waits, first come first served; its scheduled time stays.
    """

    due_s: Sequence[float]
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class SessionPacing:
    """Conversations: the turns of one session go one after another, sessions beside each other.

    Session i begins at `due_s[i]` (ascending), with at most `limit` sessions open at a time; no `due_s` begins each as
    soon as a slot is free. Request j waits `think_s[j]` after the answer to the turn before it ended, which is also its
    scheduled time. A turn that failed does not end its session.
    """

    turns: Sequence[Sequence[int]]
    """Of each session the indices of its requests, in order; every index in exactly one session."""
    think_s: Sequence[float]
    """Per request; of a first turn it is not looked at."""
    due_s: Sequence[float] | None = None
    limit: int | None = None


Pacing = ClosedLoop | OpenLoop | SessionPacing


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """How long each phase of a request may take, seconds. None waits for ever."""

    connect_s: float | None = 30.0
    first_byte_s: float | None = None
    """From sending to the first byte of the answer."""
    stall_s: float | None = None
    """Between two reads of an answer."""
    total_s: float | None = None
    """From sending to the end of the answer."""


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """How much may come. None is no limit."""

    answer_bytes: int | None = None
    """Of one answer, with its framing."""
    run_bytes: int | None = None
    """Of all answers together; None takes half of what is free where they are kept."""


def honest_answer_bytes(output_len: int) -> int:
    """More than an honest answer of so many tokens has: 400 bytes an event, and /generate repeats its text in each.

    A text of 8 bytes a token makes 340 MB of 8,192 tokens; this is 2.2 GB.
    """
    return (1 << 20) + 4096 * output_len + 32 * output_len**2


class FollowUp(Protocol):
    """Makes the body of a turn that repeats what the server answered to the turns before it."""

    def __call__(self, before: int, index: int, answer: bytes) -> bytes:
        """The body of request `index`. `before` is its session's request before it, and `answer` what came to that, with
        HTTP's framing, as far as it came.
        """


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Everything that `drive` needs."""

    url: str
    bodies: Sequence[bytes]
    """JSON, one per request."""
    pacing: Pacing
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Beyond those that every request has. May hold keys, so they are shown nowhere."""
    timeouts: RequestTimeouts = field(default_factory=RequestTimeouts)
    limits: SizeLimits = field(default_factory=SizeLimits)
    workers: int | None = None
    """Processes that share the load; None: as many as the load needs and the cores allow."""
    follow_up: FollowUp | None = None
    """Replaces the bodies of all turns but the first of each session. One worker then carries the load."""
