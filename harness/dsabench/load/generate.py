"""One load test, from the workload to the samples."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from time import perf_counter

from dsabench.errors import TrialFault
from dsabench.load.datasets import draw_prompts
from dsabench.load.drive import Delivery, Post, closed_loop, open_loop
from dsabench.load.health import ClientHealth, watching
from dsabench.load.readers import READERS, Reply
from dsabench.load.target import Target
from dsabench.load.transport import Exchange, Transport
from dsabench.model.outcome import FaultKind, Stage
from dsabench.model.sample import Prompt, RequestSample
from dsabench.model.workload import Workload

FAILED_SHARE_MAX = 0.1
"""Beyond one failed request in ten the others are no sample of the load that was asked: the fastest survive."""

_FAULTS: dict[str, FaultKind] = {"timeout": "request_timeout", "connect": "unreachable", "garbage": "bad_response"}
"""Class of a request's error → kind of the fault; all others are `request_errors`."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one load test saw."""

    samples: tuple[RequestSample, ...]
    """In the order of their indices; failed requests included."""
    started_at: datetime
    """Wall clock at 0.0 of the samples' times."""
    duration_s: float
    """From the first scheduled request to the last byte."""
    client: ClientHealth


async def warm_up(target: Target, workload: Workload) -> None:
    """Send the workload's warm-up requests, `max_concurrency` at a time.

    Raises:
        TrialFault: one of them failed.
        InputError: see `draw_prompts`.

    """
    prompts = (await asyncio.to_thread(draw_prompts, target, workload)).warm_up
    if prompts:
        await send_all(target, workload, prompts)


async def send_all(target: Target, workload: Workload, prompts: Sequence[Prompt]) -> float:
    """Send prompts outside the measurement, `max_concurrency` at a time; returns the seconds it took.

    Raises:
        TrialFault: stage warmup: one of them failed.

    """
    async with Transport(target.url, workload.request_timeout_s) as transport:
        start_s = perf_counter()
        deliveries = await closed_loop(
            _poster(transport, target, prompts), len(prompts), workload.max_concurrency or len(prompts)
        )
        took_s = perf_counter() - start_s
    _check(_samples(target, prompts, deliveries, start_s), stage="warmup", failed_share_max=0.0)
    return took_s


async def generate(target: Target, workload: Workload, *, on_progress: Callable[[int, int], None]) -> Run:
    """Send the workload and keep what came back. `on_progress` is told (ended, all) after each request.

    Cancellation closes every connection.

    Raises:
        TrialFault: more than `FAILED_SHARE_MAX` of the requests failed; carries the commonest error.
        InputError: see `draw_prompts`.

    """
    prompts, _, arrivals_s = await asyncio.to_thread(draw_prompts, target, workload)
    async with Transport(target.url, workload.request_timeout_s) as transport:
        post = _told(_poster(transport, target, prompts), len(prompts), on_progress)
        with _no_full_collections():
            async with watching() as watch:
                started_at, start_s = datetime.now(UTC), perf_counter()
                deliveries = await _drive(post, workload, (start_s + arrivals_s).tolist())
    samples = await asyncio.to_thread(_samples, target, prompts, deliveries, start_s)
    _check(samples, stage="load", failed_share_max=FAILED_SHARE_MAX)
    duration_s = max(sample.done_s for sample in samples) - samples[0].scheduled_s
    request_s = median(sample.done_s - sample.sent_s for sample in samples)
    health = watch.health([delivery.late_s for delivery in deliveries], request_s)
    return Run(samples, started_at, duration_s, health)


def _poster(transport: Transport, target: Target, prompts: Sequence[Prompt]) -> Post:
    bodies = [target.body(prompt) for prompt in prompts]  # before the clock starts

    async def post(index: int) -> Exchange:
        return await transport.post(bodies[index])

    return post


def _told(post: Post, count: int, on_progress: Callable[[int, int], None]) -> Post:
    ended = itertools.count(1)

    async def post_and_tell(index: int) -> Exchange:
        exchange = await post(index)
        on_progress(next(ended), count)
        return exchange

    return post_and_tell


async def _drive(post: Post, workload: Workload, due_s: Sequence[float]) -> list[Delivery]:
    follows_trace = workload.dataset == "mooncake"
    if workload.request_rate is None and workload.max_concurrency is not None and not follows_trace:
        return await closed_loop(post, len(due_s), workload.max_concurrency)
    return await open_loop(post, due_s, workload.max_concurrency)


@contextmanager
def _no_full_collections() -> Iterator[None]:
    """Keep what exists now out of the garbage collector, whose full passes over it would show up as lag."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _samples(
    target: Target, prompts: Sequence[Prompt], deliveries: Sequence[Delivery], start_s: float
) -> tuple[RequestSample, ...]:
    read = READERS[target.endpoint]
    return tuple(
        _sample(prompts[delivery.index], delivery, read(delivery.exchange.reads, start_s), start_s)
        for delivery in deliveries
    )


def _sample(prompt: Prompt, delivery: Delivery, reply: Reply, start_s: float) -> RequestSample:
    exchange = delivery.exchange
    # The server's own words say more than the broken connection that followed them.
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
        dp_rank=reply.dp_rank,
        finish_reason=reply.finish_reason,
        count_source=reply.count_source,
        error=reply.error if told or exchange.error is None else exchange.error,
    )


def _check(samples: Sequence[RequestSample], *, stage: Stage, failed_share_max: float) -> None:
    errors = Counter(sample.error for sample in samples if sample.error is not None)
    if errors.total() <= failed_share_max * len(samples):
        return
    [(commonest, _)] = errors.most_common(1)
    kind = _FAULTS.get(commonest.partition(":")[0], "request_errors")
    raise TrialFault(kind, f"{errors.total()} of {len(samples)} requests failed, most with {commonest}", stage=stage)
