"""Take boots until none is left: lock, read the journal, choose, reserve, measure.

Several processes may measure one study, each with its own worker. They share only the journal and the reservations
of boots. A single worker runs the same code and never waits.
"""

from __future__ import annotations

import asyncio
import fcntl
import math
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from dsabench.config.runtime_kinds import boot_of
from dsabench.errors import StoreError
from dsabench.model.record import Phase
from dsabench.model.runtime import RuntimeSpec
from dsabench.results.machines import machine_name
from dsabench.results.study_records import BootReservation, ReservedTrial, StudyRecords
from dsabench.runtimes.protocol import Server
from dsabench.study.budget import RunLimits
from dsabench.study.context import StudyContext
from dsabench.study.machines import EvalsOfBoot, Machine
from dsabench.study.next_boot import BootPlan, confirm_boot_beside, has_pairs_under_way
from dsabench.study.plan import make_plan
from dsabench.study.session import PlannedTrial, TrialSession
from dsabench.study.shared import SharedJournal, SharedReservations
from dsabench.study.trial import record_refusal, run_boot

FOLDER = ".sweep.lanes"
_CONFIRM_S = 2.0
"""Seconds between two looks at whether another machine still completes the confirmation."""
_TURN_S = 0.3
"""Seconds between two checks of what the other workers have finished."""


class Reservations:
    """The boots that are under way in a results folder.

    Each reservation is a locked file. The kernel releases the lock when a process is killed, so its boots become
    free again.
    """

    def __init__(self, results: Path, worker: int = 0) -> None:
        """`worker` tells apart those of one process."""
        self._folder = results / FOLDER
        self._mine = self._folder / f"{os.getpid()}-{worker}.json"

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Lock out the other workers while this one reads the journal, chooses and reserves.

        Raises:
            StoreError: the folder cannot be written.

        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / "turn.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def live(self) -> tuple[BootReservation, ...]:
        """Reservations of other living processes. Call it inside a turn."""
        others = (file for file in sorted(self._folder.glob("*.json")) if file != self._mine)
        return tuple(found for found in map(_read_held, others) if found is not None)

    @contextmanager
    def hold(self, reservation: BootReservation) -> Iterator[None]:
        """Hold a reservation. Enter inside a turn, leave after the records of the boot are written.

        Raises:
            StoreError: the reservation cannot be written.

        """
        try:
            descriptor = os.open(self._mine, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, reservation.model_dump_json().encode())
        except OSError as error:
            raise StoreError(f"{self._mine}: {error.strerror}") from error
        try:
            yield
        finally:
            self._mine.unlink(missing_ok=True)
            os.close(descriptor)

    def may_conclude(self, machine: str) -> bool:
        """Whether this machine completes the confirmation: there is no other."""
        del machine
        return True

    def confirming(self, machine: str) -> set[str]:
        """The other machines that confirm at this moment: none."""
        del machine
        return set()

    def confirms_no_more(self) -> None:
        """Nobody asks."""

    def remove(self) -> None:
        """Delete all reservations. Call it when no process measures any more."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _read_held(file: Path) -> BootReservation | None:
    """The reservation of a living process. Removes the file of a dead one."""
    with suppress(FileNotFoundError):
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink()
        except BlockingIOError:
            with suppress(ValidationError):
                return BootReservation.model_validate_json(file.read_bytes())
        finally:
            os.close(descriptor)
    return None


NextBoot = Callable[[StudyRecords], BootPlan | None]
"""Chooses the next boot from the records and reservations; None if there is none."""
WhyStop = Callable[[StudyRecords, RunLimits, int], str | None]
"""Says why so many further boots may not start, with 0 why the running one may not go on; None if they may."""


class AfterLast(Protocol):
    """What else to do in a setting's last boot, after everything in it is measured."""

    def __call__(self, spec: RuntimeSpec, server: Server) -> Awaitable[None]:
        """Do it on the server."""

    def elsewhere(self, spec: RuntimeSpec) -> EvalsOfBoot | None:
        """What a machine of a cluster is to do; None is nothing."""


class BootWorker:
    """Measure boots of one study, one after another: in this process, or on a machine of a cluster."""

    def __init__(
        self, session: TrialSession, context: StudyContext, machine: Machine | None = None, number: int = 0
    ) -> None:
        """`number` tells apart the workers of this process."""
        self._session, self._context, self._machine = session, context, machine
        self._reservations: Reservations | SharedReservations = (
            SharedReservations(context.journal)
            if isinstance(context.journal, SharedJournal)
            else Reservations(context.folder, number)
        )

    def look(self) -> StudyRecords:
        """Read the records, and what other processes have under way."""
        with self._turn():
            return self._look()

    async def take_boots(
        self, choosers: Sequence[NextBoot], unless: WhyStop, phase: Phase, after_last: AfterLast | None = None
    ) -> str | None:
        """Take boots from the first chooser that returns one.

        Returns why it stopped; None if this phase is complete. It waits for boots of other processes, because their
        results may make another boot necessary.
        """
        limits = self._context.limits
        while True:
            with ExitStack() as held:
                with self._turn():
                    records = self._look()
                    boot = next(filter(None, (choose(records) for choose in choosers)), None)
                    reason = None if boot is None else unless(records, limits, 1)
                    trials = [] if boot is None or reason is not None else boot.trials(records, limits.round)
                    if boot is not None and trials:
                        held.enter_context(self._reservations.hold(self._reservation(boot, trials)))
                if boot is not None and trials:
                    goes_on = partial(self._go_on, held, boot.spec, choosers, unless)
                    await self._measure(records, boot, trials, after_last, goes_on)
                    continue
            if not any(one.phase == phase and one.round == limits.round for one in records.reservations):
                return reason
            await asyncio.sleep(_TURN_S)

    @property
    def shares_turns(self) -> bool:
        """Whether other machines may confirm at the same time, in other processes."""
        return isinstance(self._context.journal, SharedJournal) and self._context.limits.closed is None

    def confirming(self) -> set[str]:
        """Those that do. Call it inside a turn."""
        return self._reservations.confirming(machine_name(self._context.environment))

    async def confirm_beside(self, best: RuntimeSpec, others: Callable[[], set[str]], unless: WhyStop) -> None:
        """Confirm a setting together with `others`, machines that do so at the same time, until none of them has a pair under way."""
        round_ = self._context.limits.round

        def next_boot(records: StudyRecords) -> BootPlan | None:
            return confirm_boot_beside(records, round_, best, others())

        try:
            while await self.take_boots([next_boot], unless, "confirm") is None:
                with self._turn():
                    records = self._look()
                    waits = has_pairs_under_way(records, round_, best, others())
                if not waits or unless(records, self._context.limits, 1) is not None:
                    return
                await asyncio.sleep(_TURN_S)
        finally:
            self._reservations.confirms_no_more()

    async def wait_to_conclude(self) -> None:
        """Of a study that several machines measure, one completes the confirmation: wait until it is this one, or the time is up."""
        limits, told = self._context.limits, False
        time_s = math.inf if limits.budget.time_s is None else limits.budget.time_s
        while limits.closed is None and limits.elapsed_s < time_s:
            if self._reservations.may_conclude(machine_name(self._context.environment)):
                return
            if not told:
                self._session.observer.note("another machine completes the confirmation; waiting for what it finds")
            told = True
            await asyncio.sleep(_CONFIRM_S)

    def _go_on(
        self, held: ExitStack, running: RuntimeSpec, choosers: Sequence[NextBoot], unless: WhyStop
    ) -> Sequence[PlannedTrial]:
        """What to measure next, if the running server can be changed to it; reserved in place of what it has measured."""
        limits = self._context.limits
        with self._turn():
            records = self._look(running)
            boot = next(filter(None, (choose(records) for choose in choosers)), None)
            if boot is None or boot.phase != "search" or boot_of(boot.spec) != boot_of(running):
                return ()
            if unless(records, limits, 0) is not None or self._context.rules.refuse(boot.spec) is not None:
                return ()
            trials = boot.trials(records, limits.round)
            held.close()
            held.enter_context(self._reservations.hold(self._reservation(boot, trials, goes_on=True)))
        self._session.observer.setting_planned(boot)
        return trials

    def _turn(self) -> AbstractContextManager[None]:
        """`--conclude` reserves nothing, so that it works in a read-only folder."""
        return nullcontext() if self._context.limits.closed is not None else self._reservations.turn()

    def _look(self, running: RuntimeSpec | None = None) -> StudyRecords:
        context = self._context
        live = () if context.limits.closed is not None else self._reservations.live()
        return context.records(live, running)

    async def _measure(
        self,
        records: StudyRecords,
        boot: BootPlan,
        trials: Sequence[PlannedTrial],
        after_last: AfterLast | None,
        goes_on: Callable[[], Sequence[PlannedTrial]],
    ) -> None:
        context, session = self._context, self._session
        session.observer.boot_planned(boot, make_plan(records, context.limits, context.space))
        refusal = context.rules.refuse(boot.spec)
        if refusal is not None:
            record_refusal(session, trials, refusal)
            return
        last = after_last if boot.is_last else None
        if self._machine is not None:
            await self._machine.run_boot(session, trials, None if last is None else last.elsewhere(boot.spec))
            return
        await run_boot(session, trials, None if last is None else partial(last, boot.spec), goes_on)

    def _reservation(self, boot: BootPlan, trials: Sequence[PlannedTrial], *, goes_on: bool = False) -> BootReservation:
        return BootReservation(
            spec=boot.spec,
            phase=boot.phase,
            round=trials[0].round,
            trials=tuple(ReservedTrial(trial=one.trial.id, occasion=one.occasion, turn=one.turn) for one in trials),
            goes_on=goes_on,
            machine=machine_name(self._context.environment),
        )
