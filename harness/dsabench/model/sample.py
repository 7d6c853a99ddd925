"""What the load generator observed of one request. Slotted dataclasses, because there are many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int32]
EndpointName = Literal["generate", "completions", "chat"]
CountSource = Literal["frames", "total", "deltas"]
"""How the tokens of a request were counted. `frames`: the server told them with each frame. `total`: it told the total
at the end, which is spread over the frames. `deltas`: it told nothing, so each frame with text counts as one.
"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request: token ids, text or chat messages, and the number of tokens to generate."""

    input_len: int
    output_len: int
    input_ids: tuple[int, ...] | None = None
    text: str | None = None
    messages: tuple[Mapping[str, object], ...] | None = None
    """A conversation in OpenAI's format."""
    extra: Mapping[str, object] | None = None
    """Fields of the request body that the dataset sets (tools, temperature, …)."""
    due_s: float | None = None
    """When a trace sends it, in seconds after the first request; None leaves it to the arrivals."""
    session: str | None = None
    """Requests of one session are sent one after another; None is on its own."""
    pause_s: float = 0.0
    """Of a session: after the end of the answer before."""
    continues: bool = False
    """`messages` are only those of this turn. What was said before them in the session, the server's own answers too, is put
    in front of them when it is known.
    """


class Frame(NamedTuple):
    """One SSE event with at least one new token.

    `at_s` is when its bytes arrived, `tokens` is the number of new tokens (MTP brings several at once).
    """

    at_s: float
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """The frames of one answer, in two read-only columns of equal length.

    A run has hundreds of thousands of frames. Columns avoid one object each, and numpy can use them directly.
    """

    at_s: Times
    tokens: Counts

    def __post_init__(self) -> None:
        if self.at_s.shape != self.tokens.shape or self.at_s.ndim != 1:
            raise ValueError(f"{self.at_s.shape} times, {self.tokens.shape} token counts")
        self.at_s.flags.writeable = self.tokens.flags.writeable = False

    @classmethod
    def of(cls, frames: Iterable[tuple[float, int]]) -> Frames:
        """Make columns from (time, tokens) pairs."""
        pairs = list(frames)
        return cls(
            np.array([at_s for at_s, _ in pairs], np.float64), np.array([tokens for _, tokens in pairs], np.int32)
        )

    def __len__(self) -> int:
        return len(self.at_s)

    def __iter__(self) -> Iterator[Frame]:
        return map(Frame, self.at_s.tolist(), self.tokens.tolist())

    def __getitem__(self, place: int) -> Frame:
        return Frame(float(self.at_s[place]), int(self.tokens[place]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frames):
            return NotImplemented
        return np.array_equal(self.at_s, other.at_s) and np.array_equal(self.tokens, other.tokens)

    def __hash__(self) -> int:
        return hash((self.at_s.tobytes(), self.tokens.tobytes()))


NO_FRAMES = Frames(np.empty(0, np.float64), np.empty(0, np.int32))


@dataclass(frozen=True, slots=True)
class RequestSample:
    """One request. Times are seconds from the start of the measurement.

    A failed request keeps its frames, and `error` tells the reason. `accept_length` is what the server reported for
    this request; None if it reports none.
    """

    index: int
    scheduled_s: float
    sent_s: float
    done_s: float
    input_len: int
    output_len_asked: int
    frames: Frames = field(default=NO_FRAMES)
    input_tokens: int | None = None
    cached_tokens: int | None = None
    accept_length: float | None = None
    error: str | None = None
    dp_rank: int | None = None
    """Data-parallel rank that served it; None if the server does not tell."""
    finish_reason: str | None = None
    """`length`, `stop`, `abort`, `tool_calls`, …; None if the answer is incomplete."""
    count_source: CountSource = "frames"

    @property
    def output_tokens(self) -> int:
        """Number of tokens received."""
        return sum(self.frames.tokens.tolist())
