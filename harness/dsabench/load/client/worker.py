"""One worker: its event loop from the first connection to the last byte. Runs in a thread, or is a process's main."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import uvloop

from dsabench.load.client.dispatch import Dispatcher
from dsabench.load.client.log import Progress, RequestLog
from dsabench.load.client.pulse import Pulse, Vitals
from dsabench.load.client.share import Share
from dsabench.load.client.spool import Spool


@dataclass(frozen=True, slots=True)
class Done:
    """What a worker hands over; its bytes and index are in the files."""

    log: RequestLog
    vitals: Vitals


Ready = Callable[[], Awaitable[int]]
"""Called with all connections open; returns the start (perf_counter_ns) that all workers share."""


class Stopper:
    """Ends a worker from another thread. Every connection is closed before `run_worker` returns."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Done] | None = None
        self._asked = False

    def hold(self, task: asyncio.Task[Done]) -> None:
        """Called on the worker's loop at its start."""
        self._loop, self._task = asyncio.get_running_loop(), task
        if self._asked:
            task.cancel()

    def let_go(self) -> None:
        """Called on the worker's loop at its end."""
        self._loop = None

    def stop(self) -> None:
        """Ask once; safe at any time."""
        self._asked = True
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            try:
                loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:  # it has just ended by itself
                return


def run_worker(share: Share, files: tuple[int, int], ready: Ready, progress: Progress, stop: Stopper) -> Done:
    """Run a share to its end on a loop of its own.

    Raises:
        OSError: the files could not be written (disk full).
        asyncio.CancelledError: `stop` was called.

    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(share, files, ready, progress, stop))


async def _run(share: Share, files: tuple[int, int], ready: Ready, progress: Progress, stop: Stopper) -> Done:
    task = asyncio.current_task()
    assert task is not None
    stop.hold(task)
    log = RequestLog(len(share.requests))
    spool = Spool(*files, on_fault=lambda _: None)
    dispatcher = Dispatcher(share, log, spool, _endpoint(share), progress)
    try:
        await dispatcher.connect()
        start_ns = await ready()
        pulse = Pulse(dispatcher, share.timeouts)
        pulse.start()
        try:
            dispatcher.start(start_ns)
            await dispatcher.finished
        finally:
            vitals = pulse.stop()
        spool.flush()
        if spool.fault is not None:
            raise spool.fault
        return Done(log, vitals)
    finally:
        stop.let_go()
        dispatcher.stop()
        await asyncio.sleep(0)  # the transports close in the loop's next turn


def _endpoint(share: Share) -> tuple[str, int]:
    """Look the name up once; one that cannot be found is left for the connections to fail with.

    Nothing else runs on this loop yet, so it may wait: libuv would start four threads for it, and see `drive_alone`.
    """
    host, port = share.address.host, share.address.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return host, port
    return str(found[0][4][0]), port
