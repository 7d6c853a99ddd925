"""A request as the server knows it, from what a client wants to the engine's answers on their way back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from dsabench.reference.engine.request import SamplingParams
from dsabench.reference.server.rank_messages import RequestProgress


@dataclass(frozen=True, slots=True)
class BootstrapRoom:
    """Where a prefill server hands a request over to a decode server."""

    host: str
    port: int
    room: int


@dataclass(slots=True, eq=False)
class ServedRequest:
    """What a client wants, and what has come of it."""

    id: str
    prompt: list[int]
    sampling: SamplingParams
    meeting: BootstrapRoom | None = None
    """Disaggregation: where its KV changes hands."""
    listen: Callable[[RequestProgress], None] = lambda _progress: None
    """Called on the event loop for each step that brought a token."""
    arrived_s: float = field(default_factory=time.perf_counter)
    output: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    """Tokens of the prompt whose KV was there already."""
    hand_over: bool = False
    """Disaggregation: its first token and its KV are for another server."""
    transfer: bytes | None = None
    """Disaggregation: what the prefill server made of the prompt, on its way."""
    dp_rank: int | None = None
    """Which of several groups serves it."""

    @property
    def total_tokens(self) -> int:
        """Longest it can become."""
        return len(self.prompt) + self.sampling.max_new_tokens


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Observe = Callable[[ServedRequest, RequestProgress, RequestProgress | None], None]
"""Told of each update, with the one before it."""


class ResponseStream:
    """One request to the engine per prompt. A slow client gets fewer frames, and misses nothing: they are cumulative."""

    def __init__(self, requests: Sequence[ServedRequest], observe: Observe) -> None:
        self.requests, self._observe = requests, observe
        for index, request in enumerate(requests):
            request.listen = partial(self._take, index)
        self._latest: list[RequestProgress | None] = [None] * len(self.requests)
        self._unsent: set[int] = set()
        self._news = asyncio.Event()

    @property
    def unfinished(self) -> list[ServedRequest]:
        """Requests whose last update has not come."""
        pairs = zip(self.requests, self._latest, strict=True)
        return [request for request, update in pairs if update is None or update.finish is None]

    async def frames(self) -> AsyncGenerator[tuple[int, RequestProgress]]:
        """(Index of the prompt, totals so far), until every prompt is answered."""
        open_prompts = len(self.requests)
        while open_prompts:
            await self._news.wait()
            self._news.clear()
            ready, self._unsent = sorted(self._unsent), set()
            for index in ready:
                update = self._latest[index]
                assert update is not None, "it was announced"
                open_prompts -= update.finish is not None
                yield index, update

    async def answers(self) -> list[RequestProgress]:
        """The last update of every prompt."""
        last = {index: update async for index, update in self.frames()}
        return [last[index] for index in range(len(self.requests))]

    def _take(self, index: int, update: RequestProgress) -> None:
        self._observe(self.requests[index], update, self._latest[index])
        self._latest[index] = update
        self._unsent.add(index)
        self._news.set()


async def send_events(http: web.Request, events: AsyncGenerator[dict[str, Any]]) -> web.StreamResponse:
    """Answer with server-sent events, as they come, and `[DONE]`."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(http)
    async with aclosing(events):
        async for event in events:
            await response.write(b"data: " + orjson.dumps(event) + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response
