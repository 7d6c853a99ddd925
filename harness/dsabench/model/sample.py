"""What the load generator saw of one request. Slotted dataclasses: there are many of them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to send: token ids or text, and how many tokens to generate."""

    input_len: int
    output_len: int
    input_ids: tuple[int, ...] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One SSE event with at least one new token.

    `at_s` is when its bytes arrived, `tokens` how many tokens it brought (MTP brings several at once).
    """

    at_s: float
    tokens: int


@dataclass(frozen=True, slots=True)
class RequestSample:
    """One request. Times are seconds on the measurement's clock, 0.0 = its start.

    A request that failed keeps the frames it got; `error` says why. `accept_length` is what the server reported for
    this request, None where it reports none.
    """

    index: int
    scheduled_s: float
    sent_s: float
    done_s: float
    input_len: int
    output_len_asked: int
    frames: tuple[Frame, ...] = field(default=())
    input_tokens: int | None = None
    cached_tokens: int | None = None
    accept_length: float | None = None
    error: str | None = None

    @property
    def output_tokens(self) -> int:
        """Tokens received."""
        return sum(frame.tokens for frame in self.frames)
