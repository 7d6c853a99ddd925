"""Lets requests go when they are due. Open loop: by the clock; closed loop: whenever a slot is free."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter

from dsabench.load.transport import Exchange

Post = Callable[[int], Awaitable[Exchange]]
"""Send the request with this index, and come back when its answer ended."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request sent. Times are of `perf_counter`."""

    index: int
    scheduled_s: float
    """Open loop: when the arrivals put it. Closed loop: when its slot became free."""
    late_s: float
    """What the client itself was late by; waiting for a slot is not in it."""
    exchange: Exchange


async def open_loop(post: Post, due_s: Sequence[float], limit: int | None) -> list[Delivery]:
    """Send request i at `due_s[i]` (perf_counter, ascending), with at most `limit` in flight.

    One that finds no slot waits, first come first served; its scheduled time stays.
    """
    slots: AbstractAsyncContextManager[object] = nullcontext() if limit is None else asyncio.Semaphore(limit)

    async def deliver(index: int) -> Delivery:
        woke_late_s = perf_counter() - due_s[index]
        async with slots:
            free_s = perf_counter()
            exchange = await post(index)
        return Delivery(index, due_s[index], max(woke_late_s, 0.0) + exchange.sent_s - free_s, exchange)

    async with asyncio.TaskGroup() as group:
        tasks = []
        for index, at_s in enumerate(due_s):
            if (wait_s := at_s - perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            tasks.append(group.create_task(deliver(index)))
    return [task.result() for task in tasks]


async def closed_loop(post: Post, count: int, slots: int) -> list[Delivery]:
    """Keep `slots` requests in flight until `count` are sent."""
    indices = iter(range(count))
    deliveries: list[Delivery] = []

    async def keep_busy(indices: Iterator[int]) -> None:
        for index in indices:
            free_s = perf_counter()
            exchange = await post(index)
            deliveries.append(Delivery(index, free_s, exchange.sent_s - free_s, exchange))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(slots, count)):
            group.create_task(keep_busy(indices))
    return sorted(deliveries, key=lambda delivery: delivery.index)
