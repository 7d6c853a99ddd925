"""The sweep, forward only: search until the budget ends, then boot best and default in turns, then judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dsabench.config.specs import SweepConfig
from dsabench.model.record import Record
from dsabench.model.verdict import Verdict
from dsabench.search.budget import Purse
from dsabench.search.judge import judge
from dsabench.search.ledger import Ledger
from dsabench.search.plan import (
    Candidate,
    Step,
    candidates,
    challenger,
    default_failed,
    next_confirm_step,
    next_search_step,
)
from dsabench.search.proposers import Proposer, make_proposer
from dsabench.trial import Bench, run_boot


@dataclass(frozen=True, slots=True)
class Result:
    """What a sweep came to. `best` is the best setting other than the default, whether it won or not."""

    records: tuple[Record, ...]
    """All records of the round, earlier runs' included."""
    measured_now: int
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    verdicts: tuple[Verdict, ...]
    stopped: str | None
    """Why the search ended before its space was exhausted."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One run of `dsabench sweep`."""

    config: SweepConfig
    bench: Bench
    ledger: Ledger
    purse: Purse
    on_step: Callable[[Step], None] = field(default=lambda _: None)

    @property
    def round(self) -> int:
        """The round being completed."""
        return self.purse.round

    async def run(self) -> Result:
        """Search, confirm, judge; every step is on disk before the next begins."""
        before = len(self.ledger.records)
        stopped = await self._search(make_proposer(self.config))
        best = challenger(self.ledger, self.round)
        verdicts: tuple[Verdict, ...] = ()
        if best is not None and default_failed(self.ledger, self.round):
            stopped = "the default failed, so there is nothing to hold the best setting against"
        elif best is not None:
            stopped = await self._confirm(best) or stopped
            verdicts = judge(self.ledger, best.spec, self.round)
        of_round = tuple(record for record in self.ledger.records if record.round == self.round)
        return Result(
            records=of_round,
            measured_now=len(self.ledger.records) - before,
            candidates=tuple(candidates(self.ledger, self.round)),
            best=best,
            verdicts=verdicts,
            stopped=stopped,
        )

    async def _search(self, proposer: Proposer) -> str | None:
        while True:
            step = next_search_step(self.ledger, proposer, self.round, self.purse.trials_left())
            if step is None:
                return None if self.purse.trials_left() != 0 else self.purse.stops_search()
            reason = self.purse.stops_search()
            if reason is not None:
                return reason
            await self._take(step)

    async def _confirm(self, best: Candidate) -> str | None:
        while (step := next_confirm_step(self.ledger, best.spec, self.round)) is not None:
            reason = self.purse.stops_confirmation()
            if reason is not None:
                return f"confirmation cut short: {reason}"
            await self._take(step)
        return None

    async def _take(self, step: Step) -> None:
        self.on_step(step)
        for record in await run_boot(self.bench, step.errands(self.ledger, self.round)):
            self.ledger.add(record)
