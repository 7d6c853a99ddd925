"""The engine's answers to one HTTP request, on their way to the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial

from dsabench.reference.server.asked import Asked
from dsabench.reference.server.calls import Update
from dsabench.reference.server.messages import Wanted

Observe = Callable[[Asked, Update, Update | None], None]
"""Told of each update, with the one before it."""


class Exchange:
    """One request to the engine per prompt. A slow client gets fewer frames, and misses nothing: they are cumulative."""

    def __init__(self, wanted: Sequence[Wanted], observe: Observe) -> None:
        self.requests = [
            Asked(item.id, item.prompt, item.sampling, partial(self._take, index), item.meeting)
            for index, item in enumerate(wanted)
        ]
        self._observe = observe
        self._latest: list[Update | None] = [None] * len(self.requests)
        self._unsent: set[int] = set()
        self._news = asyncio.Event()

    @property
    def unfinished(self) -> list[Asked]:
        """Requests whose last update has not come."""
        pairs = zip(self.requests, self._latest, strict=True)
        return [request for request, update in pairs if update is None or update.finish is None]

    async def frames(self) -> AsyncGenerator[tuple[int, Update]]:
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

    async def answers(self) -> list[Update]:
        """The last update of every prompt."""
        last = {index: update async for index, update in self.frames()}
        return [last[index] for index in range(len(self.requests))]

    def _take(self, index: int, update: Update) -> None:
        self._observe(self.requests[index], update, self._latest[index])
        self._latest[index] = update
        self._unsent.add(index)
        self._news.set()
