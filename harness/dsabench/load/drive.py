"""Runs a plan: one worker in this thread or in one beside it, or several in processes of their own."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from time import perf_counter_ns
from typing import TYPE_CHECKING

from dsabench.errors import TrialFault
from dsabench.load.client.address import HttpAddress
from dsabench.load.client.monitor import WorkerVitals
from dsabench.load.client.spool import RequestCounter, SpoolFiles, spool_folder
from dsabench.load.client.worker import (
    SessionSchedule,
    StopSignal,
    WorkerResult,
    WorkerShare,
    own_sessions,
    run_worker,
    workers_wanted,
)
from dsabench.load.plan import FollowUp, LoadPlan, RequestTimeouts, SizeLimits
from dsabench.load.process import allow_open_files, no_full_collections, refuse_more_connections

if TYPE_CHECKING:
    from dsabench.load.read.recording import Recording

_TOLD_EVERY_S = 0.1

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RawRun:
    """A plan that ran to its end. Close the recording when it has been read."""

    recording: Recording
    vitals: tuple[WorkerVitals, ...]
    """One per worker."""

    @property
    def read_counts(self) -> list[int]:
        """Reads of each worker; before the recording is closed."""
        return [spool.read_count() for spool in self.recording.spools]


@dataclass(frozen=True, slots=True)
class _PreparedRun:
    """A plan in the form that workers take."""

    address: HttpAddress
    timeouts: RequestTimeouts
    limits: SizeLimits
    """Of one worker."""
    schedule: SessionSchedule
    requests: list[bytes]
    spools: tuple[SpoolFiles, ...]
    """One per worker."""
    follow_up: FollowUp | None = None
    """Makes whole requests."""

    @property
    def share(self) -> WorkerShare:
        """All of it."""
        schedule = self.schedule
        take = own_sessions(len(schedule.sessions), 0, 1)
        return WorkerShare(
            self.address,
            self.timeouts,
            self.limits,
            schedule,
            self.requests,
            schedule.slots,
            schedule.open_at_start,
            take,
            self.follow_up,
        )


async def send_plan(plan: LoadPlan, *, on_progress: OnProgress | None = None) -> RawRun:
    """Send all of a plan's requests and keep what comes back.

    Connections are open before the clock starts. `on_progress` is told (ended, all) about ten times a second and at the
    end. Cancellation closes every connection and ends every worker before it returns.

    Raises:
        TrialFault: kind `disk_full`: the answers could not be kept; kind `internal`: a worker died.
        InputError: the URL or a header cannot be sent.

    """
    return await _drive(_prepare(plan), on_progress or _silent)


async def _drive(prepared: _PreparedRun, tell: OnProgress) -> RawRun:
    with _keeping(prepared.spools):
        if len(prepared.spools) == 1:
            start_ns, results = await _run_beside(prepared, tell)
        else:
            from dsabench.load.client.worker_process import SharedTask, run_processes  # noqa: PLC0415  (4 ms that one worker needs not pay)

            job = SharedTask(prepared.address, prepared.timeouts, prepared.limits, prepared.schedule, prepared.requests)
            start_ns, results = await run_processes(job, [spool.descriptors for spool in prepared.spools], tell)
    return _raw_run(prepared, start_ns, results)


def send_plan_here(plan: LoadPlan) -> RawRun:
    """As `send_plan`, for a program that does nothing else meanwhile, and raises KeyboardInterrupt at Ctrl-C.

    One worker runs in this thread. In a process with a second thread every read takes references and locks that it needs
    not take otherwise: a tenth of its cost.
    """
    prepared = _prepare(plan)
    if len(prepared.spools) > 1:
        return asyncio.run(_drive(prepared, _silent))
    start_ns = 0

    async def ready() -> int:
        nonlocal start_ns
        start_ns = perf_counter_ns()
        return start_ns

    with _keeping(prepared.spools), no_full_collections():
        done = run_worker(prepared.share, prepared.spools[0].descriptors, ready, RequestCounter(), StopSignal())
    return _raw_run(prepared, start_ns, [done])


def _prepare(plan: LoadPlan) -> _PreparedRun:
    schedule, address = SessionSchedule.of(plan), HttpAddress.of(plan.url)
    head = address.head(plan.headers)
    requests = [_request(head, body) for body in plan.bodies]
    workers = workers_wanted(plan, schedule)
    allow_open_files(schedule.most_open // workers + 64)
    if schedule.due_s is None:  # every slot is used at once
        refuse_more_connections(schedule.most_open, workers)
    spools = tuple(SpoolFiles.make() for _ in range(workers))
    run_bytes = plan.limits.run_bytes
    if run_bytes is None:
        run_bytes = _free_bytes() // 2
    limits = replace(plan.limits, run_bytes=run_bytes // workers)
    make = plan.follow_up
    follow_up = None if make is None else lambda before, index, answer: _request(head, make(before, index, answer))
    return _PreparedRun(address, plan.timeouts, limits, schedule, requests, spools, follow_up)


def _request(head: bytes, body: bytes) -> bytes:
    return b"%s%d\r\n\r\n%s" % (head, len(body), body)


def _free_bytes() -> int:
    """Of the disk that keeps the answers."""
    try:
        disk = os.statvfs(spool_folder())
    except OSError:
        return sys.maxsize
    return disk.f_bavail * disk.f_frsize


def _raw_run(prepared: _PreparedRun, start_ns: int, results: list[WorkerResult]) -> RawRun:
    from dsabench.load.read.recording import merge_workers  # noqa: PLC0415  (not before the first request)

    started_at = datetime.now(UTC) - timedelta(microseconds=(perf_counter_ns() - start_ns) / 1e3)
    recording = merge_workers(
        [result.times for result in results], prepared.spools, start_ns=start_ns, started_at=started_at
    )
    return RawRun(recording, tuple(result.vitals for result in results))


@contextmanager
def _keeping(spools: tuple[SpoolFiles, ...]) -> Iterator[None]:
    """The files stay open only where all went well."""
    kept = False
    try:
        yield
        kept = True
    except OSError as error:
        raise _fault_of(error) from error
    finally:
        if not kept:
            _close(spools)


async def _run_beside(prepared: _PreparedRun, on_progress: OnProgress) -> tuple[int, list[WorkerResult]]:
    """In a thread: a process of its own would cost its start and gain nothing while this thread only waits."""
    progress, stopper, started, count = RequestCounter(), StopSignal(), [0], len(prepared.requests)

    async def ready() -> int:
        started[0] = perf_counter_ns()
        return started[0]

    def run() -> WorkerResult:
        with no_full_collections():
            return run_worker(prepared.share, prepared.spools[0].descriptors, ready, progress, stopper)

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
    if error.errno == errno.EMSGSIZE:
        return TrialFault(
            "bad_response",
            "the answers take more than half of the disk that was free for them: the server sends more than was asked, or "
            "TMPDIR is too small for this load",
            stage="load",
        )
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        advice = "free space in TMPDIR, or set it to a folder with more"
        return TrialFault("disk_full", f"the answers cannot be kept on disk: {error.strerror}; {advice}", stage="load")
    return TrialFault("internal", f"the load generator cannot run: {error}", stage="load")


def _close(spools: tuple[SpoolFiles, ...]) -> None:
    for spool in spools:
        spool.close()
