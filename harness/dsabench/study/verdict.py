"""Conclude a study: the best setting, its verdicts, and why the study ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dsabench.evals.gate import refusal_of
from dsabench.model.record import Scored
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import GateSpec
from dsabench.model.study_result import (
    Ablation,
    AlternativeVerdicts,
    FailingFamily,
    Finalist,
    ScoredSetting,
    StudyResult,
)
from dsabench.results.ablation import ablation_of
from dsabench.results.scores import LookVerdicts, confirmed_sides, in_turns, judge, judge_against, scored_settings
from dsabench.results.study_records import StudyRecords, describe
from dsabench.study.ablation import ablation_boots_left, index_of_reduced, why_unproven, winner_of
from dsabench.study.budget import why_confirmation_stops
from dsabench.study.context import StudyContext
from dsabench.study.next_boot import (
    alternatives,
    challenger,
    choose_finalist,
    confirm_boots_left,
    default_has_no_number,
    final_choice,
    observations,
)
from dsabench.study.plan import foresee, make_plan, work_left, work_to_ablate, work_to_confirm
from dsabench.study.proposers import task_of


def conclude(
    records: StudyRecords, context: StudyContext, finalists: Sequence[Finalist] = (), stopped: str | None = None
) -> StudyResult:
    """Make the result from the records. Without finalists, take the best setting and its confirmation so far."""
    config, round_ = records.config, context.limits.round
    best = challenger(records, round_)
    if not finalists and (confirmed := choose_finalist(records, round_)) is not None:
        finalists = (Finalist(confirmed, 0),)
    ordinary = [one for one in finalists if one.index < index_of_reduced(config)]
    reduced = next((one for one in finalists if one not in ordinary), None)
    is_reduced = reduced is not None and not why_unproven(records, round_, reduced)
    winner = reduced if is_reduced else final_choice(ordinary)
    if best is not None and default_has_no_number(records, round_):
        was = "was not measured" if records.missing(config.default, "search", round_) else "failed"
        stopped = f"the default {was}, so there is nothing to compare the best setting with"
    found = apply_gate(scored_settings(records, round_), finalists, config.gates)
    best = best if winner is None else winner.candidate
    judged = LookVerdicts() if winner is None else judge(records, winner.candidate.spec, round_, winner.index)
    result = StudyResult(
        environment=context.environment,
        records=tuple(record for record in records.records if record.round == round_),
        measured_now=len(records.records) - context.measured_before,
        candidates=found,
        best=next((one for one in found if best is not None and one.spec == best.spec), best),
        verdicts=judged.verdicts,
        stopped_early=judged.stopped,
        level=judged.level,
        turns=""
        if winner is None
        else in_turns(config, *confirmed_sides(records, winner.candidate.spec, round_, winner.index)),
        rivals=() if winner is None else _against_alternatives(records, round_, winner.candidate.spec),
        stopped=stopped,
        gates=() if winner is None else winner.accuracy,
        accuracy=_accuracy(records, round_),
        passed_over=tuple(one for one in ordinary if one is not final_choice(ordinary)),
        unconfirmed=_unconfirmed(records, round_, ordinary),
        ablation=_ablation(records, round_, ordinary, reduced),
        families=_families(records, round_),
    )
    return _with_work_left(result, records, context, ordinary)


def _accuracy(records: StudyRecords, round_: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for record in records.scored:
        assert isinstance(record.outcome, Scored)
        if record.round == round_:
            scores = found.setdefault(record.trial.workload.name, {})
            scores[record.trial.runtime.id] = record.outcome.metrics["score"].value
    return found


def _families(records: StudyRecords, round_: int) -> tuple[FailingFamily, ...]:
    history = observations(records, round_)
    if records.config.proposer.kind != "gp" or not any(one.failed or one.violation for one in history):
        return ()
    from dsabench.study.failing_families import failing_families  # noqa: PLC0415  (scipy, which few results need)

    return failing_families(task_of(records.config), history)


def _ablation(
    records: StudyRecords, round_: int, finalists: Sequence[Finalist], reduced: Finalist | None
) -> Ablation | None:
    winner = winner_of(records, round_, finalists)
    if winner is None:
        return None
    found = ablation_of(records, winner.candidate.spec, round_)
    return found if reduced is None else replace(found, not_adopted=why_unproven(records, round_, reduced))


def _with_work_left(
    result: StudyResult, records: StudyRecords, context: StudyContext, finalists: Sequence[Finalist]
) -> StudyResult:
    """Add the work that is missing under the limits, apart from the time limit."""
    limits = context.limits.without_time()
    plan = make_plan(records, limits, context.space)
    left = work_left(records, limits, plan, foresee(records, limits.round, plan.search_settings, context.rules.refuse))
    lacking = result.unconfirmed
    # The plan does not know the gate's verdict: after a refusal another setting is confirmed.
    if not left.boots and lacking and why_confirmation_stops(records, limits, lacking) is None:
        left = work_to_confirm(plan, lacking)
    if not left.boots:
        left = work_to_ablate(plan, ablation_boots_left(records, limits.round, finalists))
    return replace(result, left=left)


def _unconfirmed(records: StudyRecords, round_: int, finalists: Sequence[Finalist]) -> int:
    """Boots that the confirmation of the last finalist lacks, or of the one after it if the gate refused it."""
    if not finalists:
        return 0
    last = finalists[-1]
    if not last.is_less_accurate or len(finalists) == records.config.finalists:
        return confirm_boots_left(records, round_, last.candidate.spec, last.index)
    following = choose_finalist(records, round_, {one.candidate.spec.id for one in finalists})
    return 0 if following is None else confirm_boots_left(records, round_, following.spec, len(finalists))


def _against_alternatives(records: StudyRecords, round_: int, best: RuntimeSpec) -> tuple[AlternativeVerdicts, ...]:
    return tuple(
        AlternativeVerdicts(
            describe(records, spec),
            spec,
            judge_against(records, best, spec, round_),
            in_turns(
                records.config,
                records.of_setting(spec, "confirm", round_),
                records.of_setting(best, "confirm", round_),
            ),
        )
        for spec in alternatives(records, round_, best)
    )


def apply_gate(
    found: Sequence[ScoredSetting], finalists: Sequence[Finalist], gates: Sequence[GateSpec]
) -> tuple[ScoredSetting, ...]:
    """Add the gate's verdicts as constraints: a setting that did not pass every eval is not feasible."""
    refused = {
        one.candidate.spec.id: refusal_of(list(zip(gates, one.accuracy, strict=True)))
        for one in finalists
        if one.accuracy
    }
    return tuple(replace(one, score=one.score.refused(refused.get(one.spec.id))) for one in found)
