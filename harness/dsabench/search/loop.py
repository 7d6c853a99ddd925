"""The sweep, forward only: search until the budget ends, then boot best and default in turns, then judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dsabench.model.record import Record
from dsabench.model.refusal import Refuse, refuse_nothing
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
from dsabench.trial import Bench, refuse_boot, run_boot


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
    gate: Verdict | None = None
    """Accuracy of the best setting against the default's; anything but a pass takes the recommendation away."""

    @property
    def is_refused(self) -> bool:
        """Whether the gate did not let the best setting pass."""
        return self.gate is not None and self.gate.verdict in ("worse", "inconclusive")


@dataclass(frozen=True, slots=True)
class Sweep:
    """One run of `dsabench sweep`."""

    bench: Bench
    ledger: Ledger
    purse: Purse
    on_step: Callable[[Step], None] = field(default=lambda _: None)
    refuse: Refuse = refuse_nothing
    """The runtime's rules, asked before each boot."""

    async def run(self) -> Result:
        """Search, confirm, judge; every step is on disk before the next begins."""
        before = len(self.ledger.records)
        stopped = await self._search(make_proposer(self.ledger.config))
        best = _to_confirm(self.ledger, self.purse.round)
        if best is not None:
            stopped = await self._confirm(best) or stopped
        return conclude(self.ledger, self.purse, stopped, len(self.ledger.records) - before)

    async def _search(self, proposer: Proposer) -> str | None:
        while True:
            step = next_search_step(self.ledger, proposer, self.purse.round, self.purse.trials_left())
            if step is None:
                return None if self.purse.trials_left() != 0 else self.purse.stops_search()
            reason = self.purse.stops_search()
            if reason is not None:
                return reason
            await self._take(step)

    async def _confirm(self, best: Candidate) -> str | None:
        while (step := next_confirm_step(self.ledger, best.spec, self.purse.round)) is not None:
            reason = self.purse.stops_confirmation()
            if reason is not None:
                return f"confirmation cut short: {reason}"
            await self._take(step)
        return None

    async def _take(self, step: Step) -> None:
        self.on_step(step)
        errands = step.errands(self.ledger, self.purse.round)
        refusal = self.refuse(step.spec)
        records = await run_boot(self.bench, errands) if refusal is None else refuse_boot(self.bench, errands, refusal)
        for record in records:
            self.ledger.add(record)


def has_work(ledger: Ledger, purse: Purse) -> bool:
    """Whether anything is left to boot; a finished sweep need not wait for a core."""
    if purse.stops_search() is None:
        strategy = make_proposer(ledger.config)
        if next_search_step(ledger, strategy, purse.round, purse.trials_left()) is not None:
            return True
    best = _to_confirm(ledger, purse.round)
    if best is None or purse.stops_confirmation() is not None:
        return False
    return next_confirm_step(ledger, best.spec, purse.round) is not None


def conclude(ledger: Ledger, purse: Purse, stopped: str | None, measured_now: int) -> Result:
    """The result as the ledger has it."""
    round_ = purse.round
    best = challenger(ledger, round_)
    confirmed = _to_confirm(ledger, round_)
    if best is not None and default_failed(ledger, round_):
        stopped = "the default failed, so there is nothing to hold the best setting against"
    return Result(
        records=tuple(record for record in ledger.records if record.round == round_),
        measured_now=measured_now,
        candidates=tuple(candidates(ledger, round_)),
        best=best,
        verdicts=() if confirmed is None else judge(ledger, confirmed.spec, round_),
        stopped=stopped,
    )


def _to_confirm(ledger: Ledger, round_: int) -> Candidate | None:
    """The setting to hold against the default, where both can be measured and a confirmation is asked for."""
    if ledger.config.budget.confirm_boots == 0 or default_failed(ledger, round_):
        return None
    return challenger(ledger, round_)
