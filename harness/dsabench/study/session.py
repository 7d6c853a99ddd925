"""What the trials of one run share: runtime, environment, journal, cores, and the observer of its progress."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dsabench.machine.cpu_use import CpuSnapshot
from dsabench.model.environment import Environment
from dsabench.model.record import Phase, Record, Trial
from dsabench.results.journal import Journal
from dsabench.runtimes.cores import lease_cores
from dsabench.runtimes.protocol import Place, Runtime

if TYPE_CHECKING:
    from dsabench.study.next_boot import BootPlan
    from dsabench.study.plan import StudyPlan


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial to measure now, and its occasion."""

    trial: Trial
    occasion: int
    phase: Phase
    round: int = 0
    turn: int | None = None
    """Position in the confirmation; None in a search."""


class StudyObserver:
    """Receive the progress of a study. This base class shows nothing; override the methods that you need.

    An observer is a context manager, so that a live display can end.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def boot_planned(self, boot: BootPlan, plan: StudyPlan) -> None:
        """A boot starts. The plan tells how many boots there are."""

    def setting_planned(self, boot: BootPlan) -> None:
        """The running server is changed to another setting."""

    def boot_progress(self, text: str) -> None:
        """The boot reports what it is doing, in a few words."""

    def boot_ready(self, seconds: float) -> None:
        """The server answers. `seconds` is the time from start to ready."""

    def trial_started(self, trial: PlannedTrial) -> None:
        """A load test starts."""

    def requests_done(self, done: int, total: int) -> None:
        """`done` of `total` requests are answered."""

    def record_written(self, record: Record) -> None:
        """A record is on disk."""

    def note(self, text: str) -> None:
        """A person should know this; one line."""

    def for_lane(self, number: int) -> StudyObserver:
        """Return the observer for the lane with this number."""
        del number
        return self


SILENT = StudyObserver()

_BUSY_CORES = 0.3
"""Number of cores used by other processes, from which the user is warned. Idle machines stay below it."""


@dataclass(slots=True)
class TrialSession:
    """What all trials of a run have in common."""

    study: str
    runtime: Runtime
    environment: Environment
    journal: Journal
    folder: Path
    server_cores: tuple[int, ...] = ()
    client_cores: tuple[int, ...] = ()
    held_fds: tuple[int, ...] = ()
    """Locks that must be held until the server has ended, even if this process is killed."""
    ready_timeout_s: float = 1800.0
    price_per_gpu_hour: float | None = None
    """Dollars; None records no cost."""
    observer: StudyObserver = SILENT
    labels: tuple[str, ...] = ()
    """Labels of every record, in addition to those of its setting."""
    cpu_before: CpuSnapshot | None = None
    """CPU use when the run started. What others used since then is reported once, before the first boot."""
    _lease: AsyncExitStack | None = field(default=None, repr=False)
    """Keeps the lease of the cores after the first boot. None if the session was given its cores."""

    @property
    def cores(self) -> tuple[int, ...]:
        """All cores that a measurement uses."""
        return tuple(sorted({*self.server_cores, *self.client_cores}))

    async def place(self) -> Place:
        """Make the place of the next boot.

        The first call waits for free cores, so that a run without boots never holds any.
        """
        if self._lease is not None and not self.held_fds:
            cores = await self._lease.enter_async_context(lease_cores(on_wait=self._wait_for_cores))
            self.server_cores, self.client_cores, self.held_fds = cores.server, cores.client, cores.fds
        self._tell_of_others()
        boot = str(uuid.uuid4())
        return Place(
            boot=boot,
            held_fds=self.held_fds,
            folder=self.folder / "boots" / boot[:8],
            cores=self.server_cores,
            ready_timeout_s=self.ready_timeout_s,
            on_progress=self.observer.boot_progress,
        )

    def _wait_for_cores(self, text: str) -> None:
        self.cpu_before = None  # the processes that measured meanwhile are gone now, so this number says nothing
        self.observer.note(text)

    def _tell_of_others(self) -> None:
        """Report once, before the first boot, how many cores other processes use."""
        before, self.cpu_before = self.cpu_before, None
        if before is None:
            return
        busy, cores = CpuSnapshot.now(before.cores).others_cores(before), len(before.cores)
        if busy >= _BUSY_CORES:
            self.observer.note(
                f"note: other processes use {busy:.1f} of {cores} cores; results will be noisier; continuing"
            )


@asynccontextmanager
async def open_session(session: TrialSession) -> AsyncIterator[TrialSession]:
    """Yield the session. It leases cores at its first boot and releases them at the end."""
    async with AsyncExitStack() as lease:
        session._lease = lease  # noqa: SLF001  (its opener's part of it)
        yield session
