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
from dsabench.machine.cpu_use import busiest_thread_s, processes_with, wanted_by_threads
from dsabench.model.bottleneck import Bottleneck
from dsabench.runtimes.orphans import MARK
from dsabench.runtimes.protocol import Server

_EVERY_S = 0.25


@dataclass
class LoadWatch:
    """A server that is watched."""

    settings: ServerSettings
    log: ServerLog
    thread_s: float | None = None
    """Seconds in which the busiest thread ran or waited for a core; None where the runtime computes on the CPU."""

    def bottleneck(self, run: LoadRun) -> Bottleneck:
        """What limited it while the load ran."""
        begun = run.started_at.timestamp()
        gpus = () if run.machine is None else run.machine.gpus
        # A GPU without a request in flight is idle for want of load, not for want of a host.
        gpu_busy = max((gpu.busy_at_work for gpu in gpus if gpu.busy_at_work is not None), default=None)
        thread_busy = None if self.thread_s is None else min(self.thread_s / run.duration_s, 1.0)
        looks = self.log.between(begun, begun + run.duration_s)
        seen = tuple(look._replace(thread_busy=thread_busy, gpu_busy=gpu_busy) for look in looks)
        return find_bottleneck(ServerWindow(self.settings, seen))


@asynccontextmanager
async def watch_load(server: Server, info: Mapping[str, JsonValue]) -> AsyncIterator[LoadWatch | None]:
    """Watch a server as long as the context is open; None where its log is not to be seen. `info`: its /server_info."""
    if server.log_file is None:
        yield None
        return
    settings = ServerSettings.of(info)
    watch = LoadWatch(settings, ServerLog(server.log_file, settings.dp_ranks))
    before = _wanted_s(server, settings)
    looking = asyncio.ensure_future(_look_often(watch.log))
    try:
        yield watch
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    watch.thread_s = busiest_thread_s(before, _wanted_s(server, settings))


async def _look_often(log: ServerLog) -> None:
    while True:
        log.look()
        await asyncio.sleep(_EVERY_S)


def _wanted_s(server: Server, settings: ServerSettings) -> dict[tuple[int, int], float]:
    """Nothing of a runtime that computes on the CPU: its threads are busy whatever it waits for."""
    if settings.computes_on_cpu:
        return {}
    return wanted_by_threads(one.pid for one in processes_with(MARK, server.boot))
