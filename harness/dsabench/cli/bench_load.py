"""The one place where `dsabench bench` meets what drives requests: bodies and due times in, samples out."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from dsabench.load.arrivals.protocol import Times
from dsabench.load.drive import Delivery, Post, closed_loop, open_loop
from dsabench.load.health import watching
from dsabench.load.readers import READERS
from dsabench.load.readers.reply import Reply, Spoken
from dsabench.load.target import EndpointName
from dsabench.load.transport import Exchange, Transport
from dsabench.model.sample import Prompt, RequestSample


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent, where and when."""

    url: str
    endpoint: EndpointName
    headers: Mapping[str, str]
    bodies: Sequence[bytes]
    due_s: Times | None
    """Seconds after the start; None keeps `max_concurrency` slots busy."""
    max_concurrency: int | None
    timeout_s: float
    workers: int | None
    keep_text: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """What came back."""

    samples: Sequence[RequestSample]
    spoken: Sequence[Spoken | None]
    duration_s: float
    """From the start to the last byte."""
    saturated: str | None

    @property
    def frames(self) -> int:
        """Frames with new tokens."""
        return sum(len(sample.frames) for sample in self.samples)


def measure(load: Load, prompts: Sequence[Prompt], tell: Callable[[int, int], None] | None) -> Seen:
    """Send everything and read what came back afterwards."""
    return asyncio.run(_measure(load, prompts, tell))


async def _measure(load: Load, prompts: Sequence[Prompt], tell: Callable[[int, int], None] | None) -> Seen:
    ended = itertools.count(1)
    async with Transport(load.url, load.timeout_s) as transport:

        async def post(index: int) -> Exchange:
            exchange = await transport.post(load.bodies[index])
            if tell is not None:
                tell(next(ended), len(prompts))
            return exchange

        gc.collect()
        gc.freeze()
        async with watching() as watch:
            start_s = perf_counter()
            deliveries = await _drive(load, post, start_s)
    read = READERS[load.endpoint]
    replies = [read(one.exchange.reads, start_s, keep_text=load.keep_text) for one in deliveries]
    samples = [_sample(prompts[one.index], one, reply, start_s) for one, reply in zip(deliveries, replies, strict=True)]
    request_s = median(sample.done_s - sample.sent_s for sample in samples)
    health = watch.health([one.late_s for one in deliveries], request_s)
    duration_s = max(sample.done_s for sample in samples)
    return Seen(samples, [reply.spoken for reply in replies], duration_s, health.saturated)


async def _drive(load: Load, post: Post, start_s: float) -> list[Delivery]:
    slots = load.max_concurrency or len(load.bodies)
    if load.due_s is None or not load.due_s.any():
        return await closed_loop(post, len(load.bodies), slots)
    return await open_loop(post, (start_s + load.due_s).tolist(), load.max_concurrency)


def _sample(prompt: Prompt, delivery: Delivery, reply: Reply, start_s: float) -> RequestSample:
    exchange = delivery.exchange
    told = reply.error is not None and reply.error.startswith(("server:", "abort:"))
    return RequestSample(
        index=delivery.index,
        scheduled_s=delivery.scheduled_s - start_s,
        sent_s=exchange.sent_s - start_s,
        done_s=exchange.done_s - start_s,
        input_len=prompt.input_len,
        output_len_asked=prompt.output_len,
        frames=reply.frames,
        input_tokens=reply.input_tokens,
        cached_tokens=reply.cached_tokens,
        accept_length=reply.accept_length,
        error=reply.error if told or exchange.error is None else exchange.error,
    )
