"""The sweep, forward only: search until the budget ends, then boot finalists and the default in turns, then judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dsabench.model.runtime import Refuse, refuse_nothing
from dsabench.model.study_result import Finalist, ScoredSetting, StudyResult
from dsabench.model.verdict import Verdict
from dsabench.results.study_records import StudyRecords
from dsabench.study.budget import Purse
from dsabench.study.next_boot import (
    BootPlan,
    choose_finalist,
    confirm_boots_left,
    next_confirm_boot,
    next_search_boot,
)
from dsabench.study.proposers import Proposer, make_proposer
from dsabench.study.session import TrialSession
from dsabench.study.trial import ServerTask, record_refusal, run_boot
from dsabench.study.verdict import conclude

if TYPE_CHECKING:
    from dsabench.study.gate import AccuracyGate


@dataclass(frozen=True, slots=True)
class Sweep:
    """One run of `dsabench sweep`."""

    bench: TrialSession
    ledger: StudyRecords
    purse: Purse
    on_step: Callable[[BootPlan], None] = field(default=lambda _: None)
    refuse: Refuse = refuse_nothing
    """The runtime's rules, asked before each boot."""
    gate: AccuracyGate | None = None

    async def run(self) -> StudyResult:
        """Search, confirm, judge; every step is on disk before the next begins."""
        before = len(self.ledger.records)
        stopped = await self._search(make_proposer(self.ledger.config))
        finalists, cut = await self._finals()
        return conclude(self.ledger, self.purse, cut or stopped, len(self.ledger.records) - before, finalists)

    async def _finals(self) -> tuple[list[Finalist], str | None]:
        """Confirm the best setting; after one that is less accurate, the next best. And why that was cut short."""
        finalists: list[Finalist] = []
        for heat in range(1 if self.gate is None else self.gate.gate.finalists):
            best = choose_finalist(self.ledger, self.purse.round, {one.candidate.spec.id for one in finalists})
            if best is None:
                break
            cut = await self._confirm(best, heat)
            if cut is not None and heat > 0:
                return finalists, cut
            may_boot = cut is None and self.purse.closed is None
            finalists.append(Finalist(best, heat, await self._accuracy(best, may_boot=may_boot)))
            if cut is not None or not finalists[-1].is_less_accurate:
                return finalists, cut
        return finalists, None

    async def _accuracy(self, best: ScoredSetting, *, may_boot: bool) -> Verdict | None:
        if self.gate is None or not self.gate.applies(best.spec):
            return None
        return await self.gate.judge(best.spec, may_boot)

    async def _search(self, proposer: Proposer) -> str | None:
        while True:
            step = next_search_boot(self.ledger, proposer, self.purse.round, self.purse.trials_left())
            if step is None:
                return None if self.purse.trials_left() != 0 else self.purse.stops_search()
            reason = self.purse.stops_search()
            if reason is not None:
                return reason
            await self._take(step)

    async def _confirm(self, best: ScoredSetting, heat: int) -> str | None:
        scored = self.gate is not None and self.gate.applies(best.spec)
        left = confirm_boots_left(self.ledger, best.spec, self.purse.round, heat)
        # The first finalist's boots were kept for it; another one is not begun where it cannot be finished.
        if heat > 0 and left and (reason := self.purse.stops_confirmation(left)) is not None:
            return f"the next best setting was not confirmed: {reason}"
        while (step := next_confirm_boot(self.ledger, best.spec, self.purse.round, heat)) is not None:
            reason = self.purse.stops_confirmation()
            if reason is not None:
                return f"the confirmation was cut short: {reason}"
            # Only a side's last boot is scored, when it is measured: what is confirmed of a side precedes its eval.
            encore = partial(self.gate.score, step.spec) if self.gate and scored and step.is_last else None
            await self._take(step, encore)
        return None

    async def _take(self, step: BootPlan, encore: ServerTask | None = None) -> None:
        self.on_step(step)
        errands = step.errands(self.ledger, self.purse.round)
        refusal = self.refuse(step.spec)
        if refusal is None:
            records = await run_boot(self.bench, errands, encore)
        else:
            records = record_refusal(self.bench, errands, refusal)
        for record in records:
            self.ledger.add(record)
