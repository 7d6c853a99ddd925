"""What the server and its ranks tell each other, pickled over pipes between processes of one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.request import AcceptedDrafts, FinishReason, SamplingParams


@dataclass(frozen=True, slots=True)
class Submit:
    """Serve a request."""

    group: int
    id: str
    prompt: list[int]
    sampling: SamplingParams
    parcel: bytes | None = None
    """A decode server has it from the prefill server."""
    hand_over: bool = False
    """A prefill server computes the first token, and a parcel with its news."""


@dataclass(frozen=True, slots=True)
class Abort:
    """End one request, or all where the id is None."""

    id: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Flush:
    """Forget all prefixes; answered by an `Answer`, False where requests are running or waiting."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Limit:
    """Let at most so many requests run; answered by an `Answer`, False where it is out of range."""

    ticket: int
    requests: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Answered by an `Answer` with a `Status`."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave after the step in progress."""


Call = Submit | Abort | Flush | Limit | Ask | Stop


@dataclass(frozen=True, slots=True)
class Started:
    """The rank's engine is ready; what never changes about it."""

    context_length: int
    pool_tokens: int
    prompt_tokens: int
    """Longest prompt."""
    max_running_requests: int
    kv_bytes: int
    settings: Mapping[str, object]
    """Under sglang's names, for `/server_info`."""
    reference: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Refused:
    """The environment or a table is unusable: the one line that says why."""

    message: str


@dataclass(frozen=True, slots=True)
class Update:
    """A request's totals so far."""

    output_tokens: int
    text: str
    finish: FinishReason | None
    at_s: float
    """`perf_counter` when the step was done."""
    accepted: AcceptedDrafts | None = None
    """None without speculation, and before the first verification."""


@dataclass(frozen=True, slots=True)
class News:
    """What a step brought to one request."""

    id: str
    tokens: Sequence[int]
    """New since the last news."""
    cached_tokens: int
    update: Update
    parcel: bytes | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """An engine at work."""

    counters: EngineCounters = field(default_factory=EngineCounters)
    decode_tokens_per_s: float = 0.0
    running: int = 0
    queued: int = 0
    limit: int = 0
    """Requests that may run."""
    used_tokens: int = 0
    expert_tokens_of_ranks: Sequence[Mapping[int, int]] = ()
    """What each rank's experts computed, where there is more than one rank."""


@dataclass(frozen=True, slots=True)
class Answer:
    """To a `Flush`, a `Limit` or an `Ask`."""

    ticket: int
    value: bool | Status


Report = Started | Refused | tuple[News, ...] | Answer
