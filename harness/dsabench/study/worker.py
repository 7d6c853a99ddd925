"""Take boots until none is left: lock, read the journal, choose, reserve, measure.

Several processes may measure a study at once. Search and confirmation are those of `study`, but for the accuracy gate:
its evals are left to whoever concludes the study.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from dsabench.errors import StoreError
from dsabench.model.record import Record
from dsabench.model.runtime import Refuse, refuse_nothing
from dsabench.results.study_records import BootReservation, ReservedTrial, StudyRecords
from dsabench.study.budget import Purse
from dsabench.study.next_boot import BootPlan, choose_finalist, next_confirm_boot, next_search_boot
from dsabench.study.proposers import Proposer, make_proposer
from dsabench.study.session import PlannedTrial, TrialSession
from dsabench.study.trial import record_refusal, run_boot

FOLDER = ".sweep.lanes"


class Reservations:
    """The bookings of one results folder: a locked file each, so that the kernel ends the booking of a killed process."""

    def __init__(self, results: Path) -> None:
        self._folder = results / FOLDER
        self._mine = self._folder / f"{os.getpid()}.json"

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Alone with journal and bookings: read both, choose and book while it is open.

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
        """Those of other processes that still run; only inside a turn."""
        others = (file for file in sorted(self._folder.glob("*.json")) if file != self._mine)
        return tuple(booking for booking in map(_read_held, others) if booking is not None)

    @contextmanager
    def hold(self, booking: BootReservation) -> Iterator[None]:
        """Book until it is closed; enter inside a turn, leave when the boot's records are written.

        Raises:
            StoreError: the booking cannot be written.

        """
        try:
            descriptor = os.open(self._mine, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, booking.model_dump_json().encode())
        except OSError as error:
            raise StoreError(f"{self._mine}: {error.strerror}") from error
        try:
            yield
        finally:
            self._mine.unlink(missing_ok=True)
            os.close(descriptor)

    def remove(self) -> None:
        """Nothing of it is left; for when no process measures any more."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _read_held(file: Path) -> BootReservation | None:
    """The booking of a process that lives; the file of a dead one is removed."""
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


_TURN_S = 0.3
"""Between two looks at what the others have finished."""


@dataclass(slots=True)
class Lane:
    """One process's part of a study. The purse's ledger is that of the last look."""

    bench: TrialSession
    purse: Purse
    on_step: Callable[[BootPlan], None] = field(default=lambda _: None)
    refuse: Refuse = refuse_nothing
    _read_to: int = -1
    _records: tuple[Record, ...] = ()

    async def run(self) -> None:
        """Take boots until none is left, or none may start under the budget."""
        proposer, bookings = make_proposer(self.purse.ledger.config), Reservations(self.bench.folder)
        while True:
            with ExitStack() as held:
                with bookings.turn():
                    self._look(bookings)
                    step = self._next_step(proposer)
                    errands = [] if step is None else step.errands(self.purse.ledger, self.purse.round)
                    if step is not None:
                        held.enter_context(bookings.hold(_booking(step, errands)))
                if step is not None:
                    await self._take(step, errands)
                    continue
            if not self.purse.ledger.bookings:
                return
            # What the others bring in may be the end of the search, and so the beginning of the confirmation.
            await asyncio.sleep(_TURN_S)

    def _look(self, bookings: Reservations) -> None:
        known, path = self.purse.ledger, self.bench.journal.path
        size = path.stat().st_size if path.exists() else 0
        if size != self._read_to:
            self._read_to, self._records = size, self.bench.journal.read().records
        fingerprint = self.bench.environment.fingerprint
        self.purse.ledger = StudyRecords(known.config, fingerprint, self._records, bookings.live())

    def _next_step(self, proposer: Proposer) -> BootPlan | None:
        """Search; when nobody searches any more, confirmation."""
        purse, ledger = self.purse, self.purse.ledger
        if purse.stops_search() is None:
            step = next_search_boot(ledger, proposer, purse.round, purse.trials_left())
            if step is not None:
                return step
        if ledger.under_way("search", purse.round) or purse.stops_confirmation() is not None:
            return None
        best = choose_finalist(ledger, purse.round)
        return None if best is None else next_confirm_boot(ledger, best.spec, purse.round)

    async def _take(self, step: BootPlan, errands: list[PlannedTrial]) -> None:
        self.on_step(step)
        refusal = self.refuse(step.spec)
        if refusal is None:
            await run_boot(self.bench, errands)
        else:
            record_refusal(self.bench, errands, refusal)


def _booking(step: BootPlan, errands: list[PlannedTrial]) -> BootReservation:
    trials = tuple(ReservedTrial(trial=errand.trial.id, occasion=errand.occasion) for errand in errands)
    return BootReservation(spec=step.spec, phase=step.phase, round=errands[0].round, trials=trials)
