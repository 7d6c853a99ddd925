"""One of several processes that measure a study at once: each takes the next boot that no other has taken.

Search and confirmation are those of `loop`, but for the accuracy gate: its evals are left to whoever concludes the study.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from dsabench.model.record import Record
from dsabench.model.runtime import Refuse, refuse_nothing
from dsabench.results.reservations import Reservations
from dsabench.results.study_records import BootReservation, ReservedTrial, StudyRecords
from dsabench.search.budget import Purse
from dsabench.search.loop import to_confirm
from dsabench.search.plan import Step, next_confirm_step, next_search_step
from dsabench.search.proposers import Proposer, make_proposer
from dsabench.trial import Bench, Errand, refuse_boot, run_boot

_TURN_S = 0.3
"""Between two looks at what the others have finished."""


@dataclass(slots=True)
class Lane:
    """One process's part of a study. The purse's ledger is that of the last look."""

    bench: Bench
    purse: Purse
    on_step: Callable[[Step], None] = field(default=lambda _: None)
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

    def _next_step(self, proposer: Proposer) -> Step | None:
        """Search; when nobody searches any more, confirmation."""
        purse, ledger = self.purse, self.purse.ledger
        if purse.stops_search() is None:
            step = next_search_step(ledger, proposer, purse.round, purse.trials_left())
            if step is not None:
                return step
        if ledger.under_way("search", purse.round) or purse.stops_confirmation() is not None:
            return None
        best = to_confirm(ledger, purse.round)
        return None if best is None else next_confirm_step(ledger, best.spec, purse.round)

    async def _take(self, step: Step, errands: list[Errand]) -> None:
        self.on_step(step)
        refusal = self.refuse(step.spec)
        if refusal is None:
            await run_boot(self.bench, errands)
        else:
            refuse_boot(self.bench, errands, refusal)


def _booking(step: Step, errands: list[Errand]) -> BootReservation:
    trials = tuple(ReservedTrial(trial=errand.trial.id, occasion=errand.occasion) for errand in errands)
    return BootReservation(spec=step.spec, phase=step.phase, round=errands[0].round, trials=trials)
