"""A dress rehearsal: the measured run's lengths and concurrency with other content, until its time settles.

A runtime that compiles kernels when it first meets a shape (sglang: up to 18 s) needs every shape that is timed met
before: prompt lengths, chunks, and the decode batch sizes of ramp-up, plateau and ramp-down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import perf_counter

from dsabench.load.draw.prompts import draw_rehearsal
from dsabench.load.generate import send_all
from dsabench.load.target import Target
from dsabench.model.workload import Workload

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


async def rehearse(target: Target, workload: Workload, flush: Callable[[], Awaitable[None]]) -> Rehearsal:
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
