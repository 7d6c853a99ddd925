"""The JSON frames of one recorded stream, and how it ended: what all endpoints have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from dsabench.errors import HttpFault, one_line
from dsabench.http import DONE, Read, events
from dsabench.model.sample import NO_FRAMES, CountSource, Frames

if TYPE_CHECKING:
    from pydantic import JsonValue


CachedDetails = Mapping[str, int | str | None]


class TextPiece(NamedTuple):
    """Text that one event added, and when it came (relative to the measurement's start)."""

    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class ReplyText:
    """What is kept of a reply only when it is asked for: its text, and what bench_serving's formulas read besides."""

    text: str = ""
    """The whole answer."""
    first_at_s: float | None = None
    """When the first event with text came, relative to the measurement's start."""
    pieces: tuple[TextPiece, ...] = ()
    """OpenAI endpoints: the events with text."""
    in_parts: bool = False
    """/generate: frames had only the text that was new (`--incremental-streaming-output`)."""
    reported_tokens: int | None = None
    """`usage.completion_tokens` of the last event that carries it, or `meta_info.completion_tokens`."""
    reported_beside_text: int | None = None
    """The same, of the last event that also brings text."""
    cached_tokens_details: CachedDetails | None = None
    """Where the cached tokens came from: device, host, storage."""


@dataclass(frozen=True, slots=True)
class StreamReply:
    """One parsed stream; `error` starts with one of the classes below.

    - `server: …` an error object inside the stream
    - `abort: …` the server gave the request up
    - `garbage: …` a frame that is no JSON or lacks the counts, or a count that cannot be true
    - `cut: …` the stream ended before the answer did
    - `empty: …` the answer has no token
    """

    frames: Frames = NO_FRAMES
    input_tokens: int | None = None
    cached_tokens: int | None = None
    accept_length: float | None = None
    """Tokens per decode step of this request, as the server counted them."""
    dp_rank: int | None = None
    """Data-parallel rank that served it, where the server says."""
    finish_reason: str | None = None
    count_source: CountSource = "frames"
    error: str | None = None
    spoken: ReplyText | None = None
    """None unless it was asked for."""


class JsonStream:
    """Iterate once over (time since `start_s`, frame); afterwards `done` and `error` say how it ended."""

    def __init__(self, reads: Iterable[Read], start_s: float) -> None:
        self._reads, self._start_s = reads, start_s
        self._whole = True
        self.done = False
        """`[DONE]` came."""
        self.error: str | None = None
        """The stream told of a failure, or was no such stream."""

    def __iter__(self) -> Iterator[tuple[float, JsonValue]]:
        reading = events(self._reads)
        while True:
            try:
                at_s, data, self._whole = next(reading)
            except StopIteration:
                return
            except HttpFault as fault:
                self.error = f"garbage: {fault}"
                return
            if data == DONE:
                self.done = True
                return
            if not data:  # an event without data keeps the connection alive
                continue
            try:
                frame: JsonValue = orjson.loads(data)
            except orjson.JSONDecodeError:
                self.refuse(f"{one_line(data.decode('utf-8', 'replace'))!r} is not JSON")
                return
            if (problem := problem_of(frame)) is not None:
                self.error = f"server: {problem}"
                return
            yield at_s - self._start_s, frame
            if self.error is not None:
                return

    def refuse(self, why: str) -> None:
        """Reject the current frame and all that follow. One that the connection's end cut short is merely cut."""
        if self._whole:
            self.error = f"garbage: {why}"

    def verdict(self, tokens: int, *, finished: bool, aborted: str | None, broken: str | None = None) -> str | None:
        """The reply's error: what the stream told comes first, then how it ended, then what it lacks.

        `broken` is a rule about counts that the end broke; see `broken_end`.
        """
        if self.error is not None:
            return self.error
        if aborted is not None:
            return f"abort: {aborted}"
        if not self.done and not finished:
            return f"cut: the stream ended after {tokens} tokens"
        if tokens == 0:
            return "empty: the answer has no token"
        return None if broken is None else f"garbage: {broken}"


COUNT_MAX = 2**31 - 1
_ACCEPT_LENGTH_MAX = 1024.0


def broken_count(name: str, count: object, asked: int | None = None, before: int = 0) -> str | None:
    """Why a server's count of tokens cannot be true; None where it can, and where there is none.

    `asked` is the most that there can be, `before` what the same count was in an earlier frame.
    """
    if count is None:
        return None
    tokens = as_int(count)
    if tokens is None or not 0 <= tokens <= COUNT_MAX:
        return f"{name} is {shown(count)}, which is no number of tokens"
    if tokens < before:
        return f"{name} fell from {before} to {tokens}"
    if asked is not None and tokens > asked:
        return f"{name} is {tokens} where {asked} tokens were asked for"
    return None


def broken_end(tokens: int, asked: int | None, reason: str | None) -> str | None:
    """Why an answer of so many tokens cannot have ended like this; None where it can.

    "length" is the end at exactly the number that was asked for. An end before that has a reason.
    """
    if asked is None or tokens == asked:
        return None
    if reason == "length":
        return f'finish_reason is "length" after {tokens} of {asked} tokens'
    return None if reason is not None else f"the answer ends after {tokens} of {asked} tokens and does not say why"


def message_of(problem: JsonValue) -> str:
    """One line of an error object, or of whatever stands in its place."""
    text = problem.get("message") if isinstance(problem, dict) else problem
    return one_line(text if isinstance(text, str) else orjson.dumps(problem).decode())


def shown(frame: object) -> str:
    """The start of a frame or of a part of one, for a message."""
    return one_line(orjson.dumps(frame).decode())


def as_int(value: object) -> int | None:
    """A count, or None for anything else; true and false are no counts."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_float(value: object) -> float | None:
    """A number, or None for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def accept_length_of(value: object) -> float | None:
    """Tokens per decode step; None for what cannot be one, and for 0, which says that nothing was drafted."""
    length = as_float(value)
    return length if length is not None and 0.0 < length <= _ACCEPT_LENGTH_MAX else None


def spec_accept_length(extension: Mapping[str, Any]) -> float | None:
    """`sglext.spec_tokens_details`, which a request to an OpenAI endpoint gets with `return_spec_tokens_details`."""
    details = extension.get("spec_tokens_details")
    return accept_length_of(details.get("spec_accept_length")) if isinstance(details, dict) else None


def problem_of(frame: JsonValue) -> str | None:
    """The failure that a frame tells of; None for a frame that tells of none."""
    match frame:
        case {"error": problem} if problem is not None:
            return message_of(problem)
        case {"object": "error"}:
            return message_of(frame)
    return None
