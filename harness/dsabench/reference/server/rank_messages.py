"""What the server and its ranks tell each other, pickled, and the pipes between these processes of one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.request import AcceptedDrafts, FinishReason, SamplingParams


@dataclass(frozen=True, slots=True)
class RankPipes:
    """The ends that one rank keeps."""

    server: Connection
    others: tuple[Connection, ...] = ()
    """To the other ranks of the replica; only rank 0 has them."""
    leader: Connection | None = None
    """To rank 0; only the others have it."""

    @property
    def kept(self) -> set[Connection]:
        """All of them."""
        return {self.server, *self.others, *([self.leader] if self.leader else [])}

    def agree(self, port: int | None) -> int:
        """Rank 0 gives a number, all get it."""
        for other in self.others:
            other.send(port)
        if self.leader is not None:
            port = self.leader.recv()
        assert port is not None, "rank 0 gives it"
        return port


@dataclass(frozen=True, slots=True)
class SubmitCall:
    """Serve a request."""

    group: int
    id: str
    prompt: list[int]
    sampling: SamplingParams
    transfer: bytes | None = None
    """A decode server has it from the prefill server."""
    hand_over: bool = False
    """A prefill server computes the first token, and sends its KV with its update."""


@dataclass(frozen=True, slots=True)
class AbortCall:
    """End one request, or all where the id is None."""

    id: str | None
    message: str


@dataclass(frozen=True, slots=True)
class FlushCall:
    """Forget all prefixes; answered by a `CallReply`, False where requests are running or waiting."""

    ticket: int


@dataclass(frozen=True, slots=True)
class LimitCall:
    """Let at most so many requests run; answered by a `CallReply`, False where it is out of range."""

    ticket: int
    requests: int


@dataclass(frozen=True, slots=True)
class StatusQuery:
    """Answered by a `CallReply` with an `EngineStatus`."""

    ticket: int


@dataclass(frozen=True, slots=True)
class StopCall:
    """Leave after the step in progress."""


RankCall = SubmitCall | AbortCall | FlushCall | LimitCall | StatusQuery | StopCall


@dataclass(frozen=True, slots=True)
class EngineReady:
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
class StartRefused:
    """The environment or a table is unusable: the one line that says why."""

    message: str


@dataclass(frozen=True, slots=True)
class RequestProgress:
    """A request's totals so far."""

    output_tokens: int
    text: str
    finish: FinishReason | None
    at_s: float
    """`perf_counter` when the step was done."""
    accepted: AcceptedDrafts | None = None
    """None without speculation, and before the first verification."""


@dataclass(frozen=True, slots=True)
class StepUpdate:
    """What a step brought to one request."""

    id: str
    tokens: Sequence[int]
    """New since the last news."""
    cached_tokens: int
    update: RequestProgress
    transfer: bytes | None = None


@dataclass(frozen=True, slots=True)
class EngineStatus:
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
class CallReply:
    """To a `FlushCall`, a `LimitCall` or a `StatusQuery`."""

    ticket: int
    value: bool | EngineStatus


RankReport = EngineReady | StartRefused | tuple[StepUpdate, ...] | CallReply
