"""Waiting for a server: until it answers, dies, or the time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dsabench.errors import TrialFault
from dsabench.runtimes.endpoint import Endpoint
from dsabench.runtimes.protocol import Place
from dsabench.runtimes.supervisor import Process

_INTERVAL_S = 0.1
_PROBE_TIMEOUT_S = 25.0
"""A health check may generate a token, and the first one may compile kernels for many seconds."""
_PROGRESS_INTERVAL_S = 1.0


def last_line(tail: str) -> str | None:
    """The words of a log's end that are worth telling: its last line."""
    return tail.rpartition("\n")[2].strip() or None


async def wait_ready(
    process: Process, endpoint: Endpoint, path: str, place: Place, say: Callable[[str], str | None] = last_line
) -> None:
    """Return when `path` answers 200. `say` makes words for the progress of the log's end.

    Raises:
        TrialFault: the process ended meanwhile, or `place.ready_timeout_s` passed (boot_timeout).

    """
    watch = _Watch(process, endpoint, path, place, say)
    ready = asyncio.create_task(watch.ready())
    died = asyncio.create_task(process.died("boot"))
    try:
        done, _ = await asyncio.wait({ready, died}, timeout=place.ready_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for task in (died, ready):  # a dead server cannot be ready: another program answered
            if task in done:
                return task.result()
        raise TrialFault(
            "boot_timeout",
            f"not ready after {place.ready_timeout_s:g} s (last answer: {watch.answer})",
            stage="boot",
            log_tail=process.log_tail(),
        )
    finally:
        for task in (ready, died):
            task.cancel()
        await asyncio.gather(ready, died, return_exceptions=True)


@dataclass(slots=True)
class _Watch:
    process: Process
    endpoint: Endpoint
    path: str
    place: Place
    say: Callable[[str], str | None]
    answer: str = "none"

    async def ready(self) -> None:
        clock = asyncio.get_running_loop().time
        told_at, told = clock(), ""
        while (answer := await self.endpoint.probe(self.path, _PROBE_TIMEOUT_S)) is not None:
            self.answer = answer
            if clock() - told_at > _PROGRESS_INTERVAL_S:
                told_at = clock()
                line = self.say(self.process.log_tail())
                if line and line != told:
                    told = line
                    self.place.on_progress(line)
            await asyncio.sleep(_INTERVAL_S)
