"""Workers as processes on one clock (CLOCK_MONOTONIC is the machine's): both ends of the pipe.

A worker takes its task from a file and its standard input and tells on its standard output. It ends when its standard
input does, so nothing outlives the process that started it, however that one ended.
"""

from __future__ import annotations

import asyncio
import itertools
import mmap
import os
import pickle
import signal
import struct
import sys
from array import array
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter_ns
from typing import IO, overload

from dsabench.errors import TrialFault
from dsabench.load.client.address import HttpAddress
from dsabench.load.client.spool import RequestCounter, unnamed_file
from dsabench.load.client.worker import (
    SessionSchedule,
    StopSignal,
    WorkerResult,
    WorkerShare,
    own_sessions,
    portions,
    run_worker,
    shared_sessions,
    write_session_numbers,
)
from dsabench.load.plan import RequestTimeouts, SizeLimits
from dsabench.load.process import no_full_collections

MESSAGE = struct.Struct("<cQ")
"""Kind and length of what follows: R(eady), P(rogress: the length is the count), D(one), F(ault)."""
START = struct.Struct("<q")
_TOLD_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """What all workers of a run are told, and which of them this one is."""

    address: HttpAddress
    timeouts: RequestTimeouts
    limits: SizeLimits
    schedule: SessionSchedule
    ends: array[int]
    """End of each request in the requests' file."""
    worker: int
    workers: int
    slots: int | None
    connections: int
    requests_fd: int
    tickets_fd: int
    data_fd: int
    index_fd: int


class MappedRequests(Sequence[memoryview]):
    """Requests one after another in a file that all workers map."""

    def __init__(self, fd: int, ends: array[int]) -> None:
        self._ends = ends
        self._bytes = memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, place: int) -> memoryview: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[memoryview]: ...
    def __getitem__(self, place: int | slice) -> memoryview | Sequence[memoryview]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        return self._bytes[self._ends[place - 1] if place else 0 : self._ends[place]]


def main(task_fd: int) -> None:
    """Run to the end and hand over, or leave with a told fault."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the whole group; the parent closes our input
    with open(task_fd, "rb") as file:
        task: WorkerTask = pickle.load(file)  # noqa: S301  (written by our parent into an unnamed file)
    share = WorkerShare(
        address=task.address,
        timeouts=task.timeouts,
        limits=task.limits,
        schedule=task.schedule,
        requests=MappedRequests(task.requests_fd, task.ends),
        slots=task.slots,
        connections=task.connections,
        next_session=own_sessions(len(task.schedule.sessions), task.worker, task.workers)
        if task.slots is None
        else shared_sessions(task.tickets_fd),
    )
    progress = RequestCounter()
    try:
        with no_full_collections():
            result = run_worker(
                share, (task.data_fd, task.index_fd), _ParentPipe(progress).ready, progress, StopSignal()
            )
    except OSError as error:
        data = pickle.dumps((error.errno, error.strerror))
        write_message(b"F", len(data), data)
    else:
        data = pickle.dumps(result)
        write_message(b"D", len(data), data)


class _ParentPipe:
    """Who started this worker. On the worker's own loop: a thread beside it would cost every read (see `send_plan_here`)."""

    def __init__(self, progress: RequestCounter) -> None:
        self._progress, self._told = progress, 0

    async def ready(self) -> int:
        """Say so, and wait for the start."""
        write_message(b"R", 0)
        loop = asyncio.get_running_loop()
        start: asyncio.Future[int] = loop.create_future()
        loop.add_reader(0, self._hear, start)
        start_ns = await start
        loop.call_later(_TOLD_EVERY_S, self._report, loop)
        return start_ns

    def _hear(self, start: asyncio.Future[int]) -> None:
        """The start comes in one piece; after it nothing comes but the end of a parent that is gone."""
        data = os.read(0, START.size)
        if len(data) < START.size:
            os._exit(0)
        if not start.done():
            start.set_result(START.unpack(data)[0])

    def _report(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._progress.ended != self._told:
            self._told = self._progress.ended
            write_message(b"P", self._told)
        loop.call_later(_TOLD_EVERY_S, self._report, loop)


def write_message(kind: bytes, size: int, data: bytes = b"") -> None:
    """Write one message whole: a pipe takes a large one in parts."""
    message = memoryview(MESSAGE.pack(kind, size) + data)
    while message:
        message = message[os.write(1, message) :]


_HEAD_START_NS = 20_000_000
"""From the word to the start, so that the last worker hears it in time."""
_END_S = 5.0
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from dsabench.load.client.worker_process import main; main(int(sys.argv[1]))"

Files = tuple[int, int]
"""Descriptors of a worker's data and index."""


@dataclass(frozen=True, slots=True)
class SharedTask:
    """What all workers share."""

    address: HttpAddress
    timeouts: RequestTimeouts
    limits: SizeLimits
    schedule: SessionSchedule
    requests: Sequence[bytes]


@dataclass(slots=True)
class _WorkerHandle:
    """One worker as its parent sees it."""

    process: Process
    errors: IO[bytes]
    ended: int = 0
    result: WorkerResult | None = None

    async def read_message(self) -> bytes:
        """Take one message; returns its kind."""
        assert self.process.stdout is not None
        try:
            kind, size = MESSAGE.unpack(await self.process.stdout.readexactly(MESSAGE.size))
            if kind == b"P":
                self.ended = size
            elif kind in {b"D", b"F"}:
                content = pickle.loads(await self.process.stdout.readexactly(size))  # noqa: S301  (our own child's)
                if kind == b"F":
                    raise OSError(*content)
                self.result = content
        except asyncio.IncompleteReadError as error:
            self.errors.seek(0)
            tail = self.errors.read()[-4000:].decode("utf-8", "replace")
            raise TrialFault("internal", "a worker of the load generator died", stage="load", log_tail=tail) from error
        return bytes(kind)


async def run_processes(
    shared: SharedTask, files: Sequence[Files], on_progress: Callable[[int, int], None]
) -> tuple[int, list[WorkerResult]]:
    """Start a worker for each pair of files, let them begin together, and collect what they did.

    Raises:
        OSError: a worker could not write its files (disk full).
        TrialFault: a worker died.

    """
    schedule, workers = shared.schedule, len(files)
    slots = [None] * workers if schedule.slots is None else portions(schedule.most_open, workers)
    connections = portions(schedule.open_at_start, workers)
    ends = array("q", itertools.accumulate(map(len, shared.requests)))
    handles: list[_WorkerHandle] = []
    with unnamed_file() as requests, unnamed_file() as tickets:
        for data in shared.requests:
            requests.write(data)
        write_session_numbers(tickets.fileno(), len(schedule.sessions))
        try:
            for worker, (data_fd, index_fd) in enumerate(files):
                task = WorkerTask(
                    shared.address, shared.timeouts, shared.limits, schedule, ends, worker, workers, slots[worker], connections[worker],
                    requests.fileno(), tickets.fileno(), data_fd, index_fd,
                )  # fmt: skip
                handles.append(await _start(task))
            return await _follow_all(handles, len(shared.requests), on_progress)
        finally:
            await asyncio.gather(*map(_end, handles))


async def _start(task: WorkerTask) -> _WorkerHandle:
    errors = unnamed_file()
    with unnamed_file() as file:
        file.write(pickle.dumps(task))
        file.seek(0)
        fds = (file.fileno(), task.requests_fd, task.tickets_fd, task.data_fd, task.index_fd)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", _PROGRAM, str(file.fileno()), *filter(None, sys.path),
            stdin=PIPE, stdout=PIPE, stderr=errors, pass_fds=fds, env=_environment(),
        )  # fmt: skip
    return _WorkerHandle(process, errors)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in {"PATH", "TMPDIR", "LD_LIBRARY_PATH", "LANG"}}


async def _follow_all(
    handles: Sequence[_WorkerHandle], count: int, on_progress: Callable[[int, int], None]
) -> tuple[int, list[WorkerResult]]:
    await asyncio.gather(*(handle.read_message() for handle in handles))
    start_ns = perf_counter_ns() + _HEAD_START_NS
    for handle in handles:
        assert handle.process.stdin is not None
        handle.process.stdin.write(START.pack(start_ns))

    async def follow(handle: _WorkerHandle) -> WorkerResult:
        while handle.result is None:
            if await handle.read_message() == b"P":
                on_progress(min(sum(one.ended for one in handles), count - 1), count)
        return handle.result

    try:
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(follow(handle)) for handle in handles]
    except ExceptionGroup as errors:  # the first is the cause, the others follow from it
        raise errors.exceptions[0] from None
    on_progress(count, count)
    return start_ns, [one.result() for one in following]


async def _end(handle: _WorkerHandle) -> None:
    """Close its input, which ends it; one that hangs is killed."""
    process = handle.process
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    handle.errors.close()
