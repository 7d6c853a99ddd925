"""What limited a server of ours during one load: from its log, the CPU time of its threads and the load of its GPUs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic import JsonValue

from dsabench.doctor.bottleneck import find_bottleneck
from dsabench.doctor.server_log import ServerLog
from dsabench.doctor.server_window import ServerSettings, ServerWindow
from dsabench.load.load_test import LoadRun
from dsabench.machine.cpu_use import processes_with, wanted_core_s
from dsabench.model.bottleneck import Bottleneck
from dsabench.runtimes.orphans import MARK
from dsabench.runtimes.protocol import Server

_EVERY_S = 0.25


@dataclass
class LoadWatch:
    """A server that is watched; without a log nothing is seen of it."""

    settings: ServerSettings
    log: ServerLog | None
    boot: str
    thread_s: float | None = None
    """Seconds in which the busiest thread ran or waited for a core; None where the runtime computes on the CPU."""

    def bottleneck(self, run: LoadRun) -> Bottleneck | None:
        """What limited it while the load ran; None where its log was not to be seen."""
        if self.log is None:
            return None
        begun = run.started_at.timestamp()
        gpus = () if run.machine is None else run.machine.gpus
        # A GPU without a request in flight is idle for want of load, not for want of a host.
        gpu_busy = max((gpu.busy_at_work for gpu in gpus if gpu.busy_at_work is not None), default=None)
        thread_busy = None if self.thread_s is None else min(self.thread_s / run.duration_s, 1.0)
        looks = self.log.between(begun, begun + run.duration_s)
        seen = tuple(look._replace(thread_busy=thread_busy, gpu_busy=gpu_busy) for look in looks)
        return find_bottleneck(ServerWindow(self.settings, seen))

    def wanted_s(self) -> dict[tuple[int, int], float]:
        """Process and thread → seconds so far in which it ran or waited for a core."""
        if self.log is None or self.settings.computes_on_cpu:
            return {}
        processes = processes_with(MARK, self.boot)
        return {(one.pid, thread): s for one in processes for thread, s in wanted_core_s(one.pid).items()}

    async def look_often(self) -> None:
        """Read the log four times a second."""
        while self.log is not None:
            self.log.look()
            await asyncio.sleep(_EVERY_S)


@asynccontextmanager
async def watch_load(server: Server, info: Mapping[str, JsonValue]) -> AsyncIterator[LoadWatch]:
    """Watch a server as long as the context is open. `info`: its /server_info."""
    settings = ServerSettings.of(info)
    file = server.log
    watch = LoadWatch(settings, None if file is None else ServerLog(file, settings.dp_ranks), server.boot)
    before = watch.wanted_s()
    looking = asyncio.ensure_future(watch.look_often())
    try:
        yield watch
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    grown = (seconds - before[thread] for thread, seconds in watch.wanted_s().items() if thread in before)
    watch.thread_s = max(grown, default=None)
