"""A worker that is a process: takes its orders from a file and its standard input, tells on its standard output.

It ends when its standard input does, so nothing outlives the process that started it, however that one ended.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import pickle
import signal
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from dsabench.load.client.address import Address
from dsabench.load.client.log import Progress
from dsabench.load.client.share import Schedule, Share, own_tickets, shared_tickets
from dsabench.load.client.worker import Stopper, run_worker
from dsabench.load.plan import Timeouts
from dsabench.load.process import no_full_collections

MESSAGE = struct.Struct("<cQ")
"""Kind and length of what follows: R(eady), P(rogress: the length is the count), D(one), F(ault)."""
START = struct.Struct("<q")
_TOLD_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Orders:
    """What all workers of a run are told, and which of them this one is."""

    address: Address
    timeouts: Timeouts
    schedule: Schedule
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


class Packed(Sequence[memoryview]):
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


def main(orders_fd: int) -> None:
    """Run to the end and hand over, or leave with a told fault."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the whole group; the parent closes our input
    with open(orders_fd, "rb") as file:
        orders: Orders = pickle.load(file)  # noqa: S301  (written by our parent into an unnamed file)
    share = Share(
        address=orders.address,
        timeouts=orders.timeouts,
        schedule=orders.schedule,
        requests=Packed(orders.requests_fd, orders.ends),
        slots=orders.slots,
        connections=orders.connections,
        take=own_tickets(len(orders.schedule.sessions), orders.worker, orders.workers)
        if orders.slots is None
        else shared_tickets(orders.tickets_fd),
    )
    progress = Progress()
    try:
        with no_full_collections():
            done = run_worker(share, (orders.data_fd, orders.index_fd), _Parent(progress).ready, progress, Stopper())
    except OSError as error:
        data = pickle.dumps((error.errno, error.strerror))
        tell(b"F", len(data), data)
    else:
        data = pickle.dumps(done)
        tell(b"D", len(data), data)


class _Parent:
    """Who started this worker. On the worker's own loop: a thread beside it would cost every read (see `drive_alone`)."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._told = progress, 0

    async def ready(self) -> int:
        """Say so, and wait for the start."""
        tell(b"R", 0)
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
            tell(b"P", self._told)
        loop.call_later(_TOLD_EVERY_S, self._report, loop)


def tell(kind: bytes, size: int, data: bytes = b"") -> None:
    """Write one message whole: a pipe takes a large one in parts."""
    message = memoryview(MESSAGE.pack(kind, size) + data)
    while message:
        message = message[os.write(1, message) :]
