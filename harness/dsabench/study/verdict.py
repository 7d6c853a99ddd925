"""Conclude a study: the best setting, its verdicts, and why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study_result import AlternativeVerdicts, Finalist, ScoredSetting, StudyResult
from dsabench.model.verdict import Verdict
from dsabench.results.scores import judge, judge_against, scored_settings
from dsabench.results.study_records import StudyRecords, describe
from dsabench.study.budget import Purse
from dsabench.study.next_boot import (
    alternatives,
    challenger,
    choose_finalist,
    confirm_boots_left,
    default_has_no_number,
)

_UNPROVEN = 1.0
"""Excess over a limit that nothing was measured for; as of a constraint whose metric is absent."""


def final_choice(finalists: Sequence[Finalist]) -> Finalist | None:
    """The last, where it is not less accurate; else the best of them, which is then shown as refused."""
    if not finalists:
        return None
    return finalists[0] if finalists[-1].is_less_accurate else finalists[-1]


def apply_gate(
    found: Sequence[ScoredSetting], finalists: Sequence[Finalist], margin: float
) -> tuple[ScoredSetting, ...]:
    """The candidates with the gate's verdicts as a constraint like any other: what did not pass is not feasible."""
    excess = {
        one.candidate.spec.id: (_excess(one.accuracy, margin), _why_not(one.accuracy))
        for one in finalists
        if one.accuracy is not None and one.accuracy.verdict in ("worse", "inconclusive")
    }
    return tuple(_with(one, *excess[one.spec.id]) if one.spec.id in excess else one for one in found)


def _excess(verdict: Verdict, margin: float) -> float:
    """How far the loss lies beyond the margin, relative to it."""
    if verdict.verdict == "inconclusive" or verdict.effect is None:
        return _UNPROVEN
    return max(-verdict.effect - margin, 0.0) / margin


def _why_not(verdict: Verdict) -> str:
    if verdict.verdict == "inconclusive" or verdict.effect is None:
        return f"accuracy undecided ({verdict.workload})"
    return f"less accurate: {100 * verdict.effect:+.2f} points ({verdict.workload})"


def _with(candidate: ScoredSetting, excess: float, why_not: str) -> ScoredSetting:
    score = replace(candidate.score, violation=candidate.score.violation + excess, why_not=why_not)
    return replace(candidate, score=score)


def conclude(
    ledger: StudyRecords, purse: Purse, stopped: str | None, measured_now: int, finalists: Sequence[Finalist] = ()
) -> StudyResult:
    """The result as the ledger has it; without finalists, the best setting with what was confirmed of it."""
    round_ = purse.round
    best = challenger(ledger, round_)
    if not finalists and (confirmed := choose_finalist(ledger, round_)) is not None:
        finalists = (Finalist(confirmed, 0),)
    winner = final_choice(finalists)
    if best is not None and default_has_no_number(ledger, round_):
        was = "was not measured" if ledger.missing(ledger.config.default, "search", round_) else "failed"
        stopped = f"the default {was}, so there is nothing to hold the best setting against"
    margin = 0.0 if ledger.config.gate is None else ledger.config.gate.margin
    found = apply_gate(scored_settings(ledger, round_), finalists, margin)
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
    following = choose_finalist(ledger, round_, {one.candidate.spec.id for one in finalists})
    return 0 if following is None else confirm_boots_left(ledger, following.spec, round_, len(finalists))


def _rivals(ledger: StudyRecords, best: RuntimeSpec, round_: int) -> tuple[AlternativeVerdicts, ...]:
    return tuple(
        AlternativeVerdicts(describe(ledger, rival), rival, judge_against(ledger, best, rival, round_))
        for rival in alternatives(ledger, best, round_)
    )
