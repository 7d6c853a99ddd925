"""What the trials of one run share: runtime, environment, journal, cores, and the observer that is told how far it is."""

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
    """One trial to measure now, and as which occasion."""

    trial: Trial
    occasion: int
    phase: Phase
    round: int = 0
    turn: int | None = None
    """Of a confirmation."""


class StudyObserver:
    """Whom a study tells how far it is. This one says nothing; others override what they show.

    It is a context: a live display ends when it closes.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def boot_planned(self, boot: BootPlan, plan: StudyPlan) -> None:
        """A boot begins; the plan says which of how many it is."""

    def boot_progress(self, text: str) -> None:
        """A few words on what the boot is doing."""

    def boot_ready(self, seconds: float) -> None:
        """The server answers; so long did it take."""

    def trial_started(self, trial: PlannedTrial) -> None:
        """A load begins."""

    def requests_done(self, done: int, total: int) -> None:
        """So many of its requests have their answers."""

    def record_written(self, record: Record) -> None:
        """A record is on disk."""

    def note(self, text: str) -> None:
        """What a person should know of this run, as one line."""

    def for_lane(self, number: int) -> StudyObserver:
        """The observer of one of several processes, by its number."""
        del number
        return self


SILENT = StudyObserver()

_BUSY_CORES = 0.3
"""Cores that others use before the start, from which a person is told: less is what any machine does beside."""


@dataclass(slots=True)
class TrialSession:
    """Everything that the trials of a study have in common."""

    study: str
    runtime: Runtime
    environment: Environment
    journal: Journal
    folder: Path
    server_cores: tuple[int, ...] = ()
    client_cores: tuple[int, ...] = ()
    held_fds: tuple[int, ...] = ()
    """Locks that must last until a server is gone, even when this process is killed."""
    ready_timeout_s: float = 1800.0
    observer: StudyObserver = SILENT
    labels: tuple[str, ...] = ()
    """Of every record, beside those of its setting."""
    cpu_before: CpuSnapshot | None = None
    """When the run began. What other processes used since then is told once, before the first boot."""
    _lease: AsyncExitStack | None = field(default=None, repr=False)
    """Where the cores' lease is kept, once it is asked for; None where the session has the cores that it was given."""

    @property
    def cores(self) -> tuple[int, ...]:
        """Every core that a measurement uses."""
        return tuple(sorted({*self.server_cores, *self.client_cores}))

    async def place(self) -> Place:
        """Where the next boot stands. The first one waits for cores: a run that boots nothing holds none."""
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
        self.cpu_before = None  # who measures now will be gone then
        self.observer.note(text)

    def _tell_of_others(self) -> None:
        """Say once, before the first boot, how busy other processes keep the machine."""
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
    """The session with cores of its own from its first boot until the context closes."""
    async with AsyncExitStack() as lease:
        session._lease = lease  # noqa: SLF001  (its opener's part of it)
        yield session
