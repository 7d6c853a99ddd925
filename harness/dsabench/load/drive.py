"""Runs a plan: one worker in this thread or in one beside it, or several in processes of their own."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter_ns

import numpy as np

from dsabench.errors import TrialFault
from dsabench.load.client.address import Address
from dsabench.load.client.log import Progress
from dsabench.load.client.pulse import Vitals
from dsabench.load.client.share import Schedule, Share, own_tickets
from dsabench.load.client.spool import unnamed_file
from dsabench.load.client.worker import Done, Stopper, run_worker
from dsabench.load.client.workers import wanted_workers
from dsabench.load.judge.validity import ClientHealth, judge_client
from dsabench.load.plan import Plan, Timeouts
from dsabench.load.process import allow_open_files, no_full_collections
from dsabench.load.read.recording import Recording, Reel, merge_workers

_TOLD_EVERY_S = 0.1

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Driven:
    """A plan that ran to its end. Close the recording when it has been read."""

    recording: Recording
    vitals: tuple[Vitals, ...]
    """One per worker."""

    def health(self) -> ClientHealth:
        """What the client says of itself."""
        recording = self.recording
        request_s = float(np.percentile(recording.done_s - recording.sent_s, 50)) if len(recording) else 0.0
        reads = [reel.read_count() for reel in recording.reels]
        return judge_client(self.vitals, reads, recording.late_s, request_s)


@dataclass(frozen=True, slots=True)
class _Orders:
    """A plan in the form that workers take."""

    address: Address
    timeouts: Timeouts
    schedule: Schedule
    requests: list[bytes]
    reels: tuple[Reel, ...]
    """One per worker."""

    @property
    def share(self) -> Share:
        """All of it."""
        schedule = self.schedule
        take = own_tickets(len(schedule.sessions), 0, 1)
        return Share(self.address, self.timeouts, schedule, self.requests, schedule.slots, schedule.open_at_start, take)


async def drive(plan: Plan, *, on_progress: OnProgress | None = None) -> Driven:
    """Send all of a plan's requests and keep what comes back.

    Connections are open before the clock starts. `on_progress` is told (ended, all) about ten times a second and at the
    end. Cancellation closes every connection and ends every worker before it returns.

    Raises:
        TrialFault: kind `disk_full`: the answers could not be kept; kind `internal`: a worker died.
        InputError: the URL or a header cannot be sent.

    """
    return await _drive(_orders(plan), on_progress or _silent)


async def _drive(orders: _Orders, tell: OnProgress) -> Driven:
    with _keeping(orders.reels):
        if len(orders.reels) == 1:
            start_ns, dones = await _run_beside(orders, tell)
        else:
            from dsabench.load.client.processes import Job, run_processes  # noqa: PLC0415  (4 ms that one worker needs not pay)

            job = Job(orders.address, orders.timeouts, orders.schedule, orders.requests)
            start_ns, dones = await run_processes(job, [reel.files for reel in orders.reels], tell)
    return _driven(orders, start_ns, dones)


def drive_alone(plan: Plan) -> Driven:
    """As `drive`, for a program that does nothing else meanwhile, and raises KeyboardInterrupt at Ctrl-C.

    One worker runs in this thread. In a process with a second thread every read takes references and locks that it needs
    not take otherwise: a tenth of its cost.
    """
    orders = _orders(plan)
    if len(orders.reels) > 1:
        return asyncio.run(_drive(orders, _silent))
    start_ns = 0

    async def ready() -> int:
        nonlocal start_ns
        start_ns = perf_counter_ns()
        return start_ns

    with _keeping(orders.reels), no_full_collections():
        done = run_worker(orders.share, orders.reels[0].files, ready, Progress(), Stopper())
    return _driven(orders, start_ns, [done])


def _orders(plan: Plan) -> _Orders:
    schedule, address = Schedule.of(plan), Address.of(plan.url)
    head = address.head(plan.headers)
    requests = [b"%s%d\r\n\r\n%s" % (head, len(body), body) for body in plan.bodies]
    workers = wanted_workers(plan, schedule)
    allow_open_files(schedule.most_open // workers + 64)
    reels = tuple(Reel(unnamed_file(), unnamed_file()) for _ in range(workers))
    return _Orders(address, plan.timeouts, schedule, requests, reels)


def _driven(orders: _Orders, start_ns: int, dones: list[Done]) -> Driven:
    started_at = datetime.now(UTC) - timedelta(microseconds=(perf_counter_ns() - start_ns) / 1e3)
    recording = merge_workers([done.log for done in dones], orders.reels, start_ns=start_ns, started_at=started_at)
    return Driven(recording, tuple(done.vitals for done in dones))


@contextmanager
def _keeping(reels: tuple[Reel, ...]) -> Iterator[None]:
    """The files stay open only where all went well."""
    kept = False
    try:
        yield
        kept = True
    except OSError as error:
        raise _fault_of(error) from error
    finally:
        if not kept:
            _close(reels)


async def _run_beside(orders: _Orders, on_progress: OnProgress) -> tuple[int, list[Done]]:
    """In a thread: a process of its own would cost its start and gain nothing while this thread only waits."""
    progress, stopper, started, count = Progress(), Stopper(), [0], len(orders.requests)

    async def ready() -> int:
        started[0] = perf_counter_ns()
        return started[0]

    def run() -> Done:
        with no_full_collections():
            return run_worker(orders.share, orders.reels[0].files, ready, progress, stopper)

    working = asyncio.get_running_loop().run_in_executor(None, run)
    try:
        while not working.done():
            if started[0] and progress.ended < count:  # told also when nothing ended: time passes
                on_progress(progress.ended, count)
            await asyncio.wait({working}, timeout=_TOLD_EVERY_S)
        done = working.result()
    finally:  # cancelled, or whoever is told failed: the files are closed next, so the worker must be gone
        if not working.done():
            stopper.stop()
            with suppress(asyncio.CancelledError, OSError):
                await working
    on_progress(count, count)
    return started[0], [done]


def _silent(_ended: int, _all: int) -> None: ...


def _fault_of(error: OSError) -> TrialFault:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        advice = "free space in TMPDIR, or set it to a folder with more"
        return TrialFault("disk_full", f"the answers cannot be kept on disk: {error.strerror}; {advice}", stage="load")
    return TrialFault("internal", f"the load generator cannot run: {error}", stage="load")


def _close(reels: tuple[Reel, ...]) -> None:
    for reel in reels:
        reel.close()
