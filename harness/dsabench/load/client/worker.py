"""One worker: its share of the plan and its event loop, from the first connection to the last byte.

Runs in a thread, or is a process's main.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import ceil

import uvloop

from dsabench.load.client.address import HttpAddress
from dsabench.load.client.dispatcher import Dispatcher
from dsabench.load.client.monitor import LoopMonitor, WorkerVitals
from dsabench.load.client.spool import RequestCounter, RequestTimes, Spool
from dsabench.load.plan import ClosedLoop, FollowUp, LoadPlan, OpenLoop, RequestTimeouts, SizeLimits

NextSession = Callable[[], int | None]
"""The number of the next session to begin; None when all are taken."""

_NUMBER = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class SessionSchedule:
    """Any pacing in one form: sessions of requests, begun in order, `slots` of them open at a time."""

    sessions: Sequence[Sequence[int]]
    due_s: Sequence[float] | None
    """When each session may begin, seconds after the start; None: as soon as a slot is free."""
    think_s: Sequence[float] | None
    slots: int | None
    """None: no limit."""

    @classmethod
    def of(cls, plan: LoadPlan) -> SessionSchedule:
        """Closed loops, open loops and sessions differ in what is None."""
        single = [(index,) for index in range(len(plan.bodies))]
        match plan.pacing:
            case ClosedLoop(slots):
                return cls(single, None, None, slots)
            case OpenLoop(due_s, limit):
                return cls(single, due_s, None, limit)
            case sessions:
                return cls(sessions.turns, sessions.due_s, sessions.think_s, sessions.limit)

    @property
    def most_open(self) -> int:
        """Sessions that may be open at a time."""
        return len(self.sessions) if self.slots is None else min(self.slots, len(self.sessions))

    @property
    def open_at_start(self) -> int:
        """Connections that are wanted at once: those of the first tenth of a second, or of every slot."""
        if self.due_s is None or self.slots is not None:
            return self.most_open
        return min(len(self.sessions), max(16, sum(due_s < 0.1 for due_s in self.due_s)))


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """One worker's part."""

    address: HttpAddress
    timeouts: RequestTimeouts
    limits: SizeLimits
    schedule: SessionSchedule
    requests: Sequence[bytes | memoryview]
    """Of all requests, head and body."""
    slots: int | None
    """This worker's; those of all workers add up to the schedule's."""
    connections: int
    """To open before the clock starts."""
    next_session: NextSession
    follow_up: FollowUp | None = None
    """Makes whole requests, with their head."""


def own_sessions(count: int, worker: int, workers: int) -> NextSession:
    """Every `workers`-th session, for one worker alone or where no slots are shared."""
    numbers = iter(range(worker, count, workers))
    return lambda: next(numbers, None)


def write_session_numbers(fd: int, count: int) -> None:
    """Write the sessions' numbers to a file that workers share, for `shared_sessions`."""
    data = b"".join(map(_NUMBER.pack, range(count)))
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)


def shared_sessions(fd: int) -> NextSession:
    """Take from a file whose offset all workers share.

    The kernel holds a lock on the offset of a shared open file during a read (FMODE_ATOMIC_POS), so every number is
    given out once and in order.
    """

    def following() -> int | None:
        data = os.read(fd, _NUMBER.size)
        return _NUMBER.unpack(data)[0] if data else None

    return following


def portions(total: int, parts: int) -> list[int]:
    """Nearly equal whole parts."""
    return [total // parts + (part < total % parts) for part in range(parts)]


_STREAMS = 2500
"""That one worker carries: at 50 frames a second each, about 40 % of a core of the slow kind."""
_REQUESTS_PER_S = 1000.0


def workers_wanted(plan: LoadPlan, schedule: SessionSchedule) -> int:
    """As many as were asked for, or as the load needs and the cores that this process may use allow."""
    if plan.follow_up is not None:
        return 1
    sessions = len(schedule.sessions)
    if plan.workers is not None:
        return max(1, min(plan.workers, schedule.most_open))
    streams = schedule.most_open
    if schedule.slots is None and schedule.due_s is not None:
        span_s = max(schedule.due_s[-1] - schedule.due_s[0], 1e-9) if sessions else 1.0
        streams = min(streams, ceil(sessions / span_s / _REQUESTS_PER_S * _STREAMS))
    return max(1, min(ceil(streams / _STREAMS), len(os.sched_getaffinity(0))))


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """What a worker hands over; its bytes and index are in the files."""

    times: RequestTimes
    vitals: WorkerVitals


Ready = Callable[[], Awaitable[int]]
"""Called with all connections open; returns the start (perf_counter_ns) that all workers share."""


class StopSignal:
    """Ends a worker from another thread. Every connection is closed before `run_worker` returns."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[WorkerResult] | None = None
        self._asked = False

    def hold(self, task: asyncio.Task[WorkerResult]) -> None:
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


def run_worker(
    share: WorkerShare, files: tuple[int, int], ready: Ready, progress: RequestCounter, stop: StopSignal
) -> WorkerResult:
    """Run a share to its end on a loop of its own.

    Raises:
        OSError: the files could not be written (disk full).
        asyncio.CancelledError: `stop` was called.

    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(share, files, ready, progress, stop))


async def _run(
    share: WorkerShare, files: tuple[int, int], ready: Ready, progress: RequestCounter, stop: StopSignal
) -> WorkerResult:
    task = asyncio.current_task()
    assert task is not None
    stop.hold(task)
    times = RequestTimes(len(share.requests))
    spool = Spool(*files, on_fault=lambda _: None, bytes_max=share.limits.run_bytes)
    dispatcher = Dispatcher(share, times, spool, _endpoint(share), progress)
    try:
        await dispatcher.connect()
        start_ns = await ready()
        monitor = LoopMonitor(dispatcher, share.timeouts)
        monitor.start()
        try:
            dispatcher.start(start_ns)
            await dispatcher.finished
        finally:
            vitals = monitor.stop()
        spool.flush()
        if spool.fault is not None:
            raise spool.fault
        return WorkerResult(times, vitals)
    finally:
        stop.let_go()
        dispatcher.stop()
        await asyncio.sleep(0)  # the transports close in the loop's next turn


def _endpoint(share: WorkerShare) -> tuple[str, int]:
    """Look the name up once; one that cannot be found is left for the connections to fail with.

    Nothing else runs on this loop yet, so it may wait: libuv would start four threads for it, and see `send_plan_here`.
    """
    host, port = share.address.host, share.address.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return host, port
    return str(found[0][4][0]), port
