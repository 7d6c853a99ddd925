"""The sweep, forward only: search until the budget ends, then boot finalists and the default in turns, then judge."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import partial

from dsabench.model.runtime import Refuse, RuntimeSpec, refuse_nothing
from dsabench.model.study_result import AlternativeVerdicts, Finalist, ScoredSetting, StudyResult
from dsabench.model.verdict import Verdict
from dsabench.results.scores import judge, judge_against, scored_settings
from dsabench.results.study_records import StudyRecords, describe
from dsabench.search.budget import Purse
from dsabench.search.finalists import AccuracyGate, chosen, constrained
from dsabench.search.plan import (
    Step,
    challenger,
    confirm_boots_left,
    default_has_no_number,
    next_confirm_step,
    next_search_step,
    rivals,
)
from dsabench.search.proposers import Proposer, make_proposer
from dsabench.trial import Bench, Encore, refuse_boot, run_boot


@dataclass(frozen=True, slots=True)
class Sweep:
    """One run of `dsabench sweep`."""

    bench: Bench
    ledger: StudyRecords
    purse: Purse
    on_step: Callable[[Step], None] = field(default=lambda _: None)
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
        for heat in range(1 if self.gate is None else self.gate.finalists):
            best = to_confirm(self.ledger, self.purse.round, {one.candidate.spec.id for one in finalists})
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
            step = next_search_step(self.ledger, proposer, self.purse.round, self.purse.trials_left())
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
        while (step := next_confirm_step(self.ledger, best.spec, self.purse.round, heat)) is not None:
            reason = self.purse.stops_confirmation()
            if reason is not None:
                return f"the confirmation was cut short: {reason}"
            # Only a side's last boot is scored, when it is measured: what is confirmed of a side precedes its eval.
            encore = partial(self.gate.score, step.spec) if self.gate and scored and step.is_last else None
            await self._take(step, encore)
        return None

    async def _take(self, step: Step, encore: Encore | None = None) -> None:
        self.on_step(step)
        errands = step.errands(self.ledger, self.purse.round)
        refusal = self.refuse(step.spec)
        if refusal is None:
            records = await run_boot(self.bench, errands, encore)
        else:
            records = refuse_boot(self.bench, errands, refusal)
        for record in records:
            self.ledger.add(record)


def has_work(ledger: StudyRecords, purse: Purse) -> bool:
    """Whether anything is left to boot; a finished sweep need not wait for a core."""
    if purse.stops_search() is None:
        strategy = make_proposer(ledger.config)
        if next_search_step(ledger, strategy, purse.round, purse.trials_left()) is not None:
            return True
    best = to_confirm(ledger, purse.round)
    if best is None or purse.stops_confirmation() is not None:
        return False
    return next_confirm_step(ledger, best.spec, purse.round) is not None


def why_idle(ledger: StudyRecords, purse: Purse) -> str | None:
    """Why a sweep without work has none; None where everything is measured."""
    best = to_confirm(ledger, purse.round)
    if best is not None and confirm_boots_left(ledger, best.spec, purse.round, 0):
        return f"the confirmation was cut short: {purse.stops_confirmation()}"
    reason, left = purse.stops_search(), purse.trials_left()
    # With the time up as with none left, the search may have come to the end of its space before.
    if left != 0 and next_search_step(ledger, make_proposer(ledger.config), purse.round, left) is None:
        return None
    return reason


def conclude(
    ledger: StudyRecords, purse: Purse, stopped: str | None, measured_now: int, finalists: Sequence[Finalist] = ()
) -> StudyResult:
    """The result as the ledger has it; without finalists, the best setting with what was confirmed of it."""
    round_ = purse.round
    best = challenger(ledger, round_)
    if not finalists and (confirmed := to_confirm(ledger, round_)) is not None:
        finalists = (Finalist(confirmed, 0),)
    winner = chosen(finalists)
    if best is not None and default_has_no_number(ledger, round_):
        was = "was not measured" if ledger.missing(ledger.config.default, "search", round_) else "failed"
        stopped = f"the default {was}, so there is nothing to hold the best setting against"
    margin = 0.0 if ledger.config.gate is None else ledger.config.gate.margin
    found = constrained(scored_settings(ledger, round_), finalists, margin)
    best = best if winner is None else winner.candidate
    return StudyResult(
        records=tuple(record for record in ledger.records if record.round == round_),
        measured_now=measured_now,
        candidates=found,
        best=next((one for one in found if best is not None and one.spec == best.spec), best),
        verdicts=() if winner is None else judge(ledger, winner.candidate.spec, round_, winner.heat),
        rivals=() if winner is None else _rivals(ledger, winner.candidate.spec, round_),
        stopped=stopped,
        gate=None if winner is None else winner.accuracy,
        passed_over=tuple(one for one in finalists if one is not winner),
        unconfirmed=_unconfirmed(ledger, round_, finalists),
    )


def _unconfirmed(ledger: StudyRecords, round_: int, finalists: Sequence[Finalist]) -> int:
    """What the last finalist lacks, or the one that is to follow it."""
    if not finalists:
        return 0
    last, gate = finalists[-1], ledger.config.gate
    if gate is None or not last.is_less_accurate or len(finalists) == gate.finalists:
        return confirm_boots_left(ledger, last.candidate.spec, round_, last.heat)
    following = to_confirm(ledger, round_, {one.candidate.spec.id for one in finalists})
    return 0 if following is None else confirm_boots_left(ledger, following.spec, round_, len(finalists))


def _rivals(ledger: StudyRecords, best: RuntimeSpec, round_: int) -> tuple[AlternativeVerdicts, ...]:
    return tuple(
        AlternativeVerdicts(describe(ledger, rival), rival, judge_against(ledger, best, rival, round_))
        for rival in rivals(ledger, best, round_)
    )


def to_confirm(ledger: StudyRecords, round_: int, refused: Container[str] = ()) -> ScoredSetting | None:
    """The setting to hold against the default, where both can be measured and a confirmation is asked for."""
    if ledger.config.budget.confirm_boots == 0 or default_has_no_number(ledger, round_):
        return None
    return challenger(ledger, round_, refused)
