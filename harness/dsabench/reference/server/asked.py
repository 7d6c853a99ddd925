"""One request as the server knows it, until its last token has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dsabench.reference.engine.request import SamplingParams
from dsabench.reference.server.calls import Update


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where a prefill server hands a request over to a decode server."""

    host: str
    port: int
    room: int


@dataclass(slots=True, eq=False)
class Asked:
    """What a client wants, and what has come of it."""

    id: str
    prompt: list[int]
    sampling: SamplingParams
    listen: Callable[[Update], None]
    """Called on the event loop for each step that brought a token."""
    meeting: Meeting | None = None
    """Disaggregation: where its parcel changes hands."""
    arrived_s: float = field(default_factory=time.perf_counter)
    output: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    """Tokens of the prompt whose KV was there already."""
    hand_over: bool = False
    """Disaggregation: its first token and its KV are for another server."""
    parcel: bytes | None = None
    """Disaggregation: what the prefill server made of the prompt, on its way."""
    dp_rank: int | None = None
    """Which of several groups serves it."""

    @property
    def total_tokens(self) -> int:
        """Longest it can become."""
        return len(self.prompt) + self.sampling.max_new_tokens
