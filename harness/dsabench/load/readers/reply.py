"""One parsed answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dsabench.model.sample import NO_FRAMES, CountSource, Frames

CachedDetails = Mapping[str, int | str | None]


class Piece(NamedTuple):
    """Text that one event added, and when it came (relative to the measurement's start)."""

    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Spoken:
    """What is kept of a reply only when it is asked for: its text, and what bench_serving's formulas read besides."""

    text: str = ""
    """The whole answer."""
    pieces: tuple[Piece, ...] = ()
    """The events with new text. /generate sends all of its text each time: a piece is what follows the text before."""
    reported_tokens: int | None = None
    """`usage.completion_tokens` of the last event that carries it, or `meta_info.completion_tokens`."""
    reported_beside_text: int | None = None
    """The same, of the last event that also brings text."""
    cached_tokens_details: CachedDetails | None = None
    """Where the cached tokens came from: device, host, storage."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One parsed stream; `error` starts with one of the classes below.

    - `server: …` an error object inside the stream
    - `abort: …` the server gave the request up
    - `garbage: …` a frame that is no JSON, or lacks the counts
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
    spoken: Spoken | None = None
    """None unless it was asked for."""
