"""One load test, from the workload to the samples."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from dsabench.load.draw.prompts import draw_prompts
from dsabench.load.drive import drive
from dsabench.load.judge.machine_use import MachineUse, machine_use
from dsabench.load.judge.validity import FAILED_SHARE_MAX, ClientHealth, refuse_failures
from dsabench.load.plan import ClosedLoop, Pacing, Plan, Timeouts
from dsabench.load.read.recording import Recording
from dsabench.load.read.replies import read_replies, to_samples
from dsabench.load.schedule import pacing_for
from dsabench.load.target import Target
from dsabench.machine.sampler import MachineSampler
from dsabench.model.sample import Prompt, RequestSample

if TYPE_CHECKING:  # a load test from the command line has no workload, and pydantic costs 100 ms
    from dsabench.model.workload import Workload


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
    machine: MachineUse | None = None
    """What the machine did meanwhile; None where nobody observed it."""
    unobserved: str | None = None
    """Why the observer saw nothing, where one was asked for."""


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
    pacing = ClosedLoop(workload.max_concurrency or len(prompts))
    recording = (await drive(_plan(target, workload, prompts, pacing, workers=1))).recording
    took_s = float(recording.done_s.max() - recording.scheduled_s[0])
    refuse_failures(await asyncio.to_thread(_samples, target, prompts, recording), stage="warmup", share_max=0.0)
    return took_s


async def generate(
    target: Target,
    workload: Workload,
    *,
    on_progress: Callable[[int, int], None],
    observer: MachineSampler | None = None,
) -> Run:
    """Send the workload and keep what came back. `on_progress` is told (ended, all) a few times a second.

    `observer` is begun and ended with the load itself: what is drawn before it and read after it is not in it. Cancellation
    closes every connection.

    Raises:
        TrialFault: more than `FAILED_SHARE_MAX` of the requests failed; carries the commonest error.
        InputError: see `draw_prompts`.

    """
    drawn = await asyncio.to_thread(draw_prompts, target, workload)
    prompts = drawn.measured
    plan = _plan(target, workload, prompts, pacing_for(workload, drawn))
    async with _observed_by(observer):
        driven = await drive(plan, on_progress=on_progress)
    recording = driven.recording
    health = driven.health()
    samples = await asyncio.to_thread(_samples, target, prompts, recording)
    refuse_failures(samples, stage="load", share_max=FAILED_SHARE_MAX)
    duration_s = float(recording.done_s.max() - recording.scheduled_s[0])
    run = Run(samples, recording.started_at, duration_s, health)
    if observer is None:
        return run
    return replace(run, machine=machine_use(observer, recording.start_ns / 1e9, samples), unobserved=observer.fault)


@asynccontextmanager
async def _observed_by(observer: MachineSampler | None) -> AsyncIterator[None]:
    """Around the load; the process that looks is waited for in a thread."""
    if observer is None:
        yield
        return
    observer.begin()
    try:
        await asyncio.to_thread(observer.wait)
        yield
    finally:
        observer.end()


def _plan(
    target: Target, workload: Workload, prompts: Sequence[Prompt], pacing: Pacing, workers: int | None = None
) -> Plan:
    bodies = [target.body(prompt) for prompt in prompts]
    timeouts = Timeouts(connect_s=workload.request_timeout_s, total_s=workload.request_timeout_s)
    return Plan(target.url, bodies, pacing, timeouts=timeouts, workers=workers)


def _samples(target: Target, prompts: Sequence[Prompt], recording: Recording) -> tuple[RequestSample, ...]:
    """Read the answers, and let the recording go."""
    try:
        return tuple(to_samples(prompts, read_replies(recording, target.endpoint), recording))
    finally:
        recording.close()
