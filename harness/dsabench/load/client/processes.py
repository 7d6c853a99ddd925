"""Several workers, each a process with a loop of its own, on one clock (CLOCK_MONOTONIC is the machine's)."""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import sys
from array import array
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter_ns
from typing import IO

from dsabench.errors import TrialFault
from dsabench.load.client.address import Address
from dsabench.load.client.child import MESSAGE, START, Orders
from dsabench.load.client.share import Schedule, portions, ticket_file
from dsabench.load.client.spool import unnamed_file
from dsabench.load.client.worker import Done
from dsabench.load.plan import Timeouts

_HEAD_START_NS = 20_000_000
"""From the word to the start, so that the last worker hears it in time."""
_END_S = 5.0
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from dsabench.load.client.child import main; main(int(sys.argv[1]))"

Files = tuple[int, int]
"""Descriptors of a worker's data and index."""


@dataclass(frozen=True, slots=True)
class Job:
    """What all workers share."""

    address: Address
    timeouts: Timeouts
    schedule: Schedule
    requests: Sequence[bytes]


@dataclass(slots=True)
class _Child:
    """One worker as its parent sees it."""

    process: Process
    errors: IO[bytes]
    ended: int = 0
    done: Done | None = None

    async def hear(self) -> bytes:
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
                self.done = content
        except asyncio.IncompleteReadError as error:
            self.errors.seek(0)
            tail = self.errors.read()[-4000:].decode("utf-8", "replace")
            raise TrialFault("internal", "a worker of the load generator died", stage="load", log_tail=tail) from error
        return bytes(kind)


async def run_processes(
    job: Job, files: Sequence[Files], on_progress: Callable[[int, int], None]
) -> tuple[int, list[Done]]:
    """Start a worker for each pair of files, let them begin together, and collect what they did.

    Raises:
        OSError: a worker could not write its files (disk full).
        TrialFault: a worker died.

    """
    schedule, workers = job.schedule, len(files)
    slots = [None] * workers if schedule.slots is None else portions(schedule.most_open, workers)
    connections = portions(schedule.open_at_start, workers)
    ends = array("q", itertools.accumulate(map(len, job.requests)))
    children: list[_Child] = []
    with unnamed_file() as requests, unnamed_file() as tickets:
        for data in job.requests:
            requests.write(data)
        ticket_file(tickets.fileno(), len(schedule.sessions))
        try:
            for worker, (data_fd, index_fd) in enumerate(files):
                orders = Orders(
                    job.address, job.timeouts, schedule, ends, worker, workers, slots[worker], connections[worker],
                    requests.fileno(), tickets.fileno(), data_fd, index_fd,
                )  # fmt: skip
                children.append(await _start(orders))
            return await _conduct(children, len(job.requests), on_progress)
        finally:
            await asyncio.gather(*map(_end, children))


async def _start(orders: Orders) -> _Child:
    errors = unnamed_file()
    with unnamed_file() as file:
        file.write(pickle.dumps(orders))
        file.seek(0)
        fds = (file.fileno(), orders.requests_fd, orders.tickets_fd, orders.data_fd, orders.index_fd)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", _PROGRAM, str(file.fileno()), *filter(None, sys.path),
            stdin=PIPE, stdout=PIPE, stderr=errors, pass_fds=fds, env=_environment(),
        )  # fmt: skip
    return _Child(process, errors)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in {"PATH", "TMPDIR", "LD_LIBRARY_PATH", "LANG"}}


async def _conduct(
    children: Sequence[_Child], count: int, on_progress: Callable[[int, int], None]
) -> tuple[int, list[Done]]:
    await asyncio.gather(*(child.hear() for child in children))
    start_ns = perf_counter_ns() + _HEAD_START_NS
    for child in children:
        assert child.process.stdin is not None
        child.process.stdin.write(START.pack(start_ns))

    async def follow(child: _Child) -> Done:
        while child.done is None:
            if await child.hear() == b"P":
                on_progress(min(sum(one.ended for one in children), count - 1), count)
        return child.done

    try:
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(follow(child)) for child in children]
    except ExceptionGroup as errors:  # the first is the cause, the others follow from it
        raise errors.exceptions[0] from None
    on_progress(count, count)
    return start_ns, [one.result() for one in following]


async def _end(child: _Child) -> None:
    """Close its input, which ends it; one that hangs is killed."""
    process = child.process
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    child.errors.close()
