"""One load test of a workload: warm up, rehearse, send, read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING

from dsabench.load.draw.prompts import draw_prompts, draw_rehearsal
from dsabench.load.drive import send_plan
from dsabench.load.judge.machine_use import MachineUse, machine_use
from dsabench.load.judge.reach import ReachCheck, latest_ends_s
from dsabench.load.judge.validity import FAILED_SHARE_MAX, ClientHealth, judge_client, refuse_failures, typical_times
from dsabench.load.plan import ClosedLoop, LoadPlan, Pacing, RequestTimeouts
from dsabench.load.read.chat_history import follow_up_of
from dsabench.load.read.recording import Recording
from dsabench.load.read.replies import read_replies, to_samples
from dsabench.load.requests import LoadTarget, asked_tokens, body_of, size_limits
from dsabench.load.schedule import are_chats, pacing_for, pacing_of
from dsabench.machine.sampler import MachineSampler
from dsabench.model.sample import Prompt, RequestSample

if TYPE_CHECKING:
    from dsabench.model.workload import Workload


@dataclass(frozen=True, slots=True)
class LoadRun:
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
    notes: tuple[str, ...] = ()
    """What a reader of the numbers should know of the data."""


async def warm_up(target: LoadTarget, workload: Workload) -> None:
    """Send the workload's warm-up requests, `max_concurrency` at a time.

    Raises:
        TrialFault: one of them failed.
        InputError: see `draw_prompts`.

    """
    prompts = (await asyncio.to_thread(draw_prompts, target, workload)).warm_up
    if prompts:
        await send_all(target, workload, prompts)


async def send_all(target: LoadTarget, workload: Workload, prompts: Sequence[Prompt]) -> float:
    """Send prompts outside the measurement, `max_concurrency` at a time; returns the seconds it took.

    Raises:
        TrialFault: stage warmup: one of them failed.

    """
    limit = workload.max_concurrency or len(prompts)
    pacing = pacing_of(prompts, None, limit) if are_chats(prompts) else ClosedLoop(limit)
    recording = (await send_plan(_plan(target, workload, prompts, pacing, workers=1))).recording
    took_s = float(recording.done_s.max() - recording.scheduled_s[0])
    refuse_failures(await asyncio.to_thread(_samples, target, prompts, recording), stage="warmup", share_max=0.0)
    return took_s


async def run_load_test(
    target: LoadTarget,
    workload: Workload,
    *,
    on_progress: Callable[[int, int], None],
    observer: MachineSampler | None = None,
    least_attainment: float | None = None,
) -> LoadRun:
    """Send the workload and keep what came back. `on_progress` is told (ended, all) a few times a second.

    With `least_attainment` the load is stopped once it is certain that a smaller share of the requests meets the SLO.

    `observer` is begun and ended with the load itself: what is drawn before it and read after it is not in it. Cancellation
    closes every connection.

    Raises:
        TrialFault: more than `FAILED_SHARE_MAX` of the requests failed; carries the commonest error.
        OutOfReach: the share of `least_attainment` is.
        InputError: see `draw_prompts`.

    """
    drawn = await asyncio.to_thread(draw_prompts, target, workload)
    prompts = drawn.measured
    plan = _plan(target, workload, prompts, pacing_for(workload, drawn))
    if least_attainment is not None and workload.slo is not None:
        latest_s = latest_ends_s(workload.slo, plan.pacing, asked_tokens(target.options, prompts))
        on_progress = _both(on_progress, ReachCheck(latest_s, least_attainment))
    async with _observed_by(observer):
        driven = await send_plan(plan, on_progress=on_progress)
    recording = driven.recording
    reads = driven.read_counts
    samples = await asyncio.to_thread(_samples, target, prompts, recording)
    health = judge_client(driven.vitals, reads, recording.late_s, typical_times(samples))
    refuse_failures(samples, stage="load", share_max=FAILED_SHARE_MAX)
    duration_s = float(recording.done_s.max() - recording.scheduled_s[0])
    run = LoadRun(samples, recording.started_at, duration_s, health, notes=drawn.notes)
    if observer is None:
        return run
    return replace(run, machine=machine_use(observer, recording.start_ns / 1e9, samples), unobserved=observer.fault)


def _both(on_progress: Callable[[int, int], None], check: ReachCheck) -> Callable[[int, int], None]:
    def tell(ended: int, of: int) -> None:
        on_progress(ended, of)
        check.told(ended)

    return tell


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
    target: LoadTarget, workload: Workload, prompts: Sequence[Prompt], pacing: Pacing, workers: int | None = None
) -> LoadPlan:
    options = target.options
    bodies = [body_of(options, prompt) for prompt in prompts]
    timeouts = RequestTimeouts(connect_s=workload.request_timeout_s, total_s=workload.request_timeout_s)
    return LoadPlan(
        target.url,
        bodies,
        pacing,
        timeouts=timeouts,
        limits=size_limits(options, prompts),
        workers=workers,
        follow_up=follow_up_of(options, prompts),
    )


def _samples(target: LoadTarget, prompts: Sequence[Prompt], recording: Recording) -> tuple[RequestSample, ...]:
    """Read the answers, and let the recording go."""
    try:
        replies = read_replies(recording, target.endpoint, asked_tokens(target.options, prompts))
        return tuple(to_samples(prompts, replies, recording))
    finally:
        recording.close()


SETTLED_WITHIN = 0.05
"""A pass within this share of the fastest pass before it is taken for settled."""
SLACK_S = 0.05
"""So is one within this many seconds: a pass of milliseconds is all noise."""
FEWEST_PASSES = 2
MOST_PASSES = 6
MOST_S = 180.0
"""After this long no further pass begins."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The passes, and how long each took."""

    passes_s: tuple[float, ...] = ()
    most: int | None = None
    """Passes that the workload asks for at most, where it does."""

    @property
    def settled(self) -> bool:
        """Whether the last pass took no longer than the others had come down to."""
        if len(self.passes_s) < FEWEST_PASSES:
            return False
        fastest_s = min(self.passes_s[:-1])
        return abs(self.passes_s[-1] - fastest_s) <= max(SETTLED_WITHIN * fastest_s, SLACK_S)

    @property
    def warning(self) -> str | None:
        """One line where the time had not settled."""
        if self.settled or not self.passes_s:
            return None
        if self.most == 1:
            return "one pass of the rehearsal was asked for: nothing says that its time had settled"
        last = ", ".join(f"{seconds:.1f}" for seconds in self.passes_s[-3:])
        return f"the rehearsal had not settled after {len(self.passes_s)} passes (last: {last} s): expect a slow start"


async def rehearse(target: LoadTarget, workload: Workload, flush: Callable[[], Awaitable[None]]) -> Rehearsal:
    """Send passes of equal shape until two take equally long, or as many as asked for. `flush` is awaited before each.

    Raises:
        TrialFault: stage warmup: a request failed.
        InputError: see `draw_prompts`.

    """
    if workload.warmup_requests == 0:
        return Rehearsal()
    done, count = Rehearsal(most=workload.rehearsal_passes), _count_of(workload)
    most_passes = workload.rehearsal_passes or MOST_PASSES
    begun_s = perf_counter()
    while not done.settled and len(done.passes_s) < most_passes and perf_counter() - begun_s < MOST_S:
        prompts = await asyncio.to_thread(draw_rehearsal, target, workload, count, len(done.passes_s))
        await flush()
        done = replace(done, passes_s=(*done.passes_s, await send_all(target, workload, prompts)))
    return done


def _count_of(workload: Workload) -> int:
    """Prompts of a pass. Equal ones of a closed loop need twice its concurrency: ramp-up, plateau, ramp-down.

    Where lengths differ all are needed: each may be a shape of its own. The turns of a session always differ.
    """
    if (
        workload.sessions is None
        and workload.range_ratio == 1.0
        and workload.request_rate is None
        and workload.max_concurrency is not None
    ):
        return min(workload.num_prompts, 2 * workload.max_concurrency)
    return workload.num_prompts
