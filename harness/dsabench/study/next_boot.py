"""Choose the next boot: baseline, interrupted, listed, proposed, confirmation.

The choice depends on the records alone, so an interrupted study continues where it stopped.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from dsabench.config.runtime_kinds import boot_of
from dsabench.config.specs import StudyConfig
from dsabench.model.numerics import changed_numerics
from dsabench.model.record import Phase, Trial
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.space import canonical, completed, is_legal, legal
from dsabench.model.study import Assignment, holds
from dsabench.model.study_result import Finalist, ScoredSetting
from dsabench.model.verdict import BOOTS_MIN
from dsabench.model.workload import Workload
from dsabench.results.ablation import number_of_changes, tied_with_first
from dsabench.results.machines import machine_name
from dsabench.results.scores import (
    judge,
    outdoes,
    rank_key,
    score_of_each,
    score_setting,
    scored_by,
    scored_settings,
)
from dsabench.results.study_records import StudyRecords, describe
from dsabench.study.proposers import PROPOSERS, Observation, Proposer, task_of
from dsabench.study.session import PlannedTrial


@dataclass(frozen=True, slots=True)
class BootPlan:
    """One boot: its setting, its workloads and its purpose."""

    spec: RuntimeSpec
    workloads: tuple[Workload, ...]
    phase: Phase
    label: str
    is_last: bool = False
    """Whether its server may answer the gate afterwards: the last confirmation boot of the default or the best setting, and the boot
    that completes a setting of the search.
    """
    turn: int | None = None
    """Position in the confirmation; each setting has one boot per turn."""

    def trials(self, records: StudyRecords, round_: int) -> list[PlannedTrial]:
        """The trials of this boot with their occasions."""
        trials = [Trial(runtime=self.spec, workload=workload) for workload in self.workloads]
        return [PlannedTrial(trial, records.next_occasion(trial), self.phase, round_, self.turn) for trial in trials]


def next_baseline_boot(records: StudyRecords, round_: int, trials_left: int | None = None) -> BootPlan | None:
    """The default setting, which all others are compared with, under each workload that it lacks."""
    return _search_boot(records, records.config.default, round_, trials_left)


def next_search_boot(
    records: StudyRecords, round_: int, proposer: Proposer, trials_left: int | None = None
) -> BootPlan | None:
    """An interrupted setting, else a listed or enqueued one, else a proposed one; None if the whole space is measured. Before the first
    one on another machine than the default was measured on, the default.

    The boot takes at most `trials_left` workloads. At 0 it is returned all the same: the caller must be able to
    tell "the limit ended the search" from "everything is measured".
    """
    spec = interrupted(records, round_) or _listed(records, round_) or _asked(records, proposer, round_)
    if spec is None:
        return None
    return _baseline_here(records, round_) or _search_boot(records, spec, round_, trials_left)


def _baseline_here(records: StudyRecords, round_: int) -> BootPlan | None:
    """The default on this machine; None where it was tried on it, or under way on it."""
    default = records.config.default
    boots = chain.from_iterable(records.of_setting(default, "search", round_).values())
    known = {machine_name(record.environment) for record in boots}
    under_way = any(one.spec == default and one.phase == "search" for one in records.reservations)
    if records.machine is None or not known or records.machine in known or under_way:
        return None
    return BootPlan(default, records.config.workloads_of("search"), "search", describe(records, default))


def _search_boot(
    records: StudyRecords, spec: RuntimeSpec, round_: int, trials_left: int | None = None
) -> BootPlan | None:
    lacking = records.left(spec, "search", round_)
    taken = lacking[:trials_left] if trials_left else lacking
    is_last = len(taken) == len(records.missing(spec, "search", round_))
    return BootPlan(spec, tuple(taken), "search", describe(records, spec), is_last) if taken else None


def next_confirm_boot(records: StudyRecords, round_: int, best: RuntimeSpec, index: int = 0) -> BootPlan | None:
    """The next boot of the confirmation; None if it is complete.

    Default, alternatives and best setting take turns (AB BA AB …), so that a drift of the machine hits all of them.
    Each finalist (number `index`) has its own boots of the default, because it is confirmed at another time.
    """
    return next(confirm_boots(records, round_, best, index), None)


def confirm_boots_left(records: StudyRecords, round_: int, best: RuntimeSpec, index: int = 0) -> int:
    """Number of boots that the confirmation of a finalist still takes, if none fails."""
    return sum(1 for _ in confirm_boots(records, round_, best, index))


def confirm_boots(records: StudyRecords, round_: int, best: RuntimeSpec, index: int = 0) -> Iterator[BootPlan]:
    """The boots that the confirmation of a finalist still takes, in order; none once it was stopped."""
    default, budget = records.config.default, records.config.budget
    of_finalist, own = budget.confirm_boots, _turns_of(records, index)
    sides = [(spec, own if spec == default else None) for spec in _sides(records, round_, best)]
    # A gate scores a side in a boot that may be its last.
    last = min(BOOTS_MIN, of_finalist) if budget.stop_when_decided else of_finalist
    if budget.stop_when_decided and judge(records, best, round_, index).stopped:
        return
    for pair, boot in boots_in_turns(records, round_, "confirm", sides, own):
        yield replace(boot, is_last=pair == last - 1 and boot.spec in (default, best))


def _turns_of(records: StudyRecords, index: int) -> range:
    """Those of a finalist."""
    of_finalist = records.config.budget.confirm_boots
    return range(index * of_finalist, (index + 1) * of_finalist)


def _sides(records: StudyRecords, round_: int, best: RuntimeSpec) -> list[RuntimeSpec]:
    """The settings that take turns in a confirmation."""
    return [records.config.default, *alternatives(records, round_, best), best]


def confirm_boot_beside(
    records: StudyRecords, round_: int, best: RuntimeSpec, others: Container[str]
) -> BootPlan | None:
    """The next boot of the first finalist's confirmation on this machine, where `others` (names of machines) confirm at the same time:
    each turn is of one machine. None if nothing is left here.

    The last turn is left out where a gate asks in it, and all are where looks end it early: that takes one after the other.
    """
    sides, workloads = _sides(records, round_, best), records.config.workloads_of("confirm")
    for turn, found in _turns_beside(records, round_, sides).items():
        theirs = {machine: had for machine, had in found.items() if machine != records.machine}
        if any(machine in others or len(had) == len(sides) * len(workloads) for machine, had in theirs.items()):
            continue
        here = set() if records.machine is None else found[records.machine]
        for spec in sides if turn % 2 == 0 else reversed(sides):
            if left := [load for load in workloads if Trial(runtime=spec, workload=load).id not in here]:
                return BootPlan(spec, tuple(left), "confirm", describe(records, spec), turn=turn)
    return None


def has_pairs_under_way(records: StudyRecords, round_: int, best: RuntimeSpec, others: Container[str]) -> bool:
    """Whether one of these machines has begun a turn of that confirmation which none has completed."""
    sides = _sides(records, round_, best)
    whole = len(sides) * len(records.config.workloads_of("confirm"))
    return any(
        any(machine in others for machine in found) and all(len(had) < whole for had in found.values())
        for found in _turns_beside(records, round_, sides).values()
    )


def _turns_beside(
    records: StudyRecords, round_: int, sides: Sequence[RuntimeSpec]
) -> dict[int, defaultdict[str, set[str]]]:
    """Each turn that machines share → machine → ids of the trials that are recorded there, or under way."""
    config, turns = records.config, _turns_of(records, 0)
    if config.budget.stop_when_decided:
        return {}
    found = _by_turn(records, round_, "confirm", sides)
    for one in records.reservations:
        if one.phase == "confirm" and one.round == round_:
            for trial in one.trials:
                if trial.turn is not None:
                    found[trial.turn][one.machine].add(trial.trial)
    return {turn: found[turn] for turn in (turns[:-1] if config.gates else turns)}


def _by_turn(
    records: StudyRecords, round_: int, phase: Phase, specs: Sequence[RuntimeSpec]
) -> defaultdict[int, defaultdict[str, set[str]]]:
    """Turn → machine → ids of the trials that are recorded there."""
    found = defaultdict[int, defaultdict[str, set[str]]](lambda: defaultdict(set))
    for spec in specs:
        for record in chain.from_iterable(records.of_setting(spec, phase, round_).values()):
            if record.turn is not None:
                found[record.turn][machine_name(record.environment)].add(record.id)
    return found


def boots_in_turns(
    records: StudyRecords, round_: int, phase: Phase, sides: Sequence[tuple[RuntimeSpec, range | None]], turns: range
) -> Iterator[tuple[int, BootPlan]]:
    """The boots that the sides lack, each with the number of its pair. A side is given with the turns in which its boots count; None
    counts them all.
    """
    again = _left_elsewhere(records, round_, phase, [spec for spec, _ in sides], turns)
    for pair in range(len(turns)):
        for spec, counted in sides if pair % 2 == 0 else reversed(sides):
            left = records.left(spec, phase, round_, pair + 1, counted, again=again)
            if left:
                trial = Trial(runtime=spec, workload=left[0])
                taken = _turns_taken(records, trial, round_, phase, again)
                turn = next(turn for turn in count(turns.start) if turn not in taken)
                yield pair, BootPlan(spec, tuple(left), phase, describe(records, spec), turn=turn)


def _turns_taken(
    records: StudyRecords, trial: Trial, round_: int, phase: Phase, again: frozenset[int]
) -> set[int | None]:
    """The turns that have a boot, or have one under way; of those that begin `again`, one here. If the record of an earlier turn was
    lost, the next boot takes that turn.
    """
    taken = {record.turn for record in records.settled(trial.id, phase, round_) if records.counts(record, again)}
    return taken | {one.turn for one in records.under_way(phase, round_) if one.trial == trial.id}


def _left_elsewhere(
    records: StudyRecords, round_: int, phase: Phase, specs: Sequence[RuntimeSpec], turns: range
) -> frozenset[int]:
    """Turns that other machines have begun and none has completed: they begin again here, since the boots of a turn are compared."""
    if records.machine is None:
        return frozenset()
    whole = len(specs) * len(records.config.workloads_of(phase))
    return frozenset(
        turn
        for turn, found in _by_turn(records, round_, phase, specs).items()
        if turn in turns and set(found) != {records.machine} and max(map(len, found.values())) < whole
    )


def final_choice(finalists: Sequence[Finalist]) -> Finalist | None:
    """The last finalist if the gate accepted it; else the best one, which is then reported as refused."""
    if not finalists:
        return None
    return finalists[0] if finalists[-1].is_less_accurate else finalists[-1]


def choose_finalist(records: StudyRecords, round_: int, refused: Container[str] = ()) -> ScoredSetting | None:
    """The setting to confirm; None if the budget has no confirmation or the default has no number."""
    if records.config.budget.confirm_boots == 0 or default_has_no_number(records, round_):
        return None
    best = challenger(records, round_, refused)
    return None if best is None else confirmed_winner(records, round_, best)


def confirmed_winner(records: StudyRecords, round_: int, best: ScoredSetting) -> ScoredSetting:
    """The setting itself; with `confirm_second`, once both are confirmed, the better one of it and the second best."""
    if not records.config.budget.confirm_second or (second := _runner_up(records, round_, best.spec)) is None:
        return best
    boots = [records.of_setting(one.spec, "confirm", round_) for one in (second, best)]
    return second if outdoes(records.config, *boots) else best


def _runner_up(records: StudyRecords, round_: int, best: RuntimeSpec) -> ScoredSetting | None:
    """The best setting beside another one."""
    return challenger(records, round_, {best.id})


def challenger(records: StudyRecords, round_: int, refused: Container[str] = ()) -> ScoredSetting | None:
    """The best feasible setting other than the default and those in `refused` (ids of specs), as the strategy of the search sees it; None
    if there is none.

    Settings within 1 % of the best are a tie, by what they are worth or as measured. It goes to the one whose confirmation began
    first, so that a continued study stays with it; else to the one with the fewest changes.
    """
    config, objective = records.config, records.config.objective
    scored = scored_settings(records, round_)
    found = [
        one for one in scored if one.spec != config.default and one.score.is_feasible and one.spec.id not in refused
    ]
    measured = sorted(found, key=lambda one: rank_key(objective, one.score), reverse=True)
    worth = _worth(records, scored)
    found = sorted(measured, key=lambda one: objective.sign * worth[one.spec.id], reverse=True)
    tied = tied_with_first(found, lambda one: worth[one.spec.id])
    either = {one.spec.id: one for one in (*tied, *tied_with_first(measured, lambda one: one.score.value))}
    begun = {spec_id: _confirmation_began(records, one.spec, round_) for spec_id, one in either.items()}
    if any(begun.values()):
        return min(either.values(), key=lambda one: begun[one.spec.id] or math.inf)
    return min(tied, key=lambda one: number_of_changes(config, one.spec), default=None)


def _worth(records: StudyRecords, scored: Sequence[ScoredSetting]) -> dict[str, float]:
    """Id of a spec → what the setting is worth, of those with a value."""
    told = {one.spec.id: one.score.value for one in scored if one.score.value is not None}
    seen = [(one.spec.id, observation_of(records, one.spec, one)) for one in scored]
    known = [(spec_id, observation) for spec_id, observation in seen if observation is not None]
    task = task_of(records.config)
    values = PROPOSERS[records.config.proposer.kind].worth(task, [observation for _, observation in known])
    return told | {spec_id: value for (spec_id, _), value in zip(known, values, strict=True) if value is not None}


def _confirmation_began(records: StudyRecords, spec: RuntimeSpec, round_: int) -> float | None:
    boots = records.of_setting(spec, "confirm", round_).values()
    return min((record.started_at.timestamp() for of_load in boots for record in of_load), default=None)


def default_has_no_number(records: StudyRecords, round_: int) -> bool:
    """Whether the search has no number for the default: it failed, or it was not measured."""
    default = records.config.default
    return score_setting(records.config.objective, records.of_setting(default, "search", round_)).value is None


def alternatives(records: StudyRecords, round_: int, best: RuntimeSpec) -> list[RuntimeSpec]:
    """Settings that are confirmed in addition to default and best: only if requested, and if they have a number."""
    config = records.config
    if config.budget.others_confirmed is None:
        return []
    scored = scored_settings(records, round_)
    wanted = listed(config) if config.budget.confirm_first else []
    if config.budget.confirm_exact and changed_numerics(config.default, best):
        exact = [
            one
            for one in scored
            if one.score.is_feasible and one.spec != config.default and not changed_numerics(config.default, one.spec)
        ]
        wanted += [max(exact, key=lambda one: rank_key(config.objective, one.score)).spec] if exact else []
    numbered = {one.spec.id for one in scored if one.score.value is not None}
    if config.budget.confirm_second and (second := _runner_up(records, round_, best)) is not None:
        wanted.append(second.spec)
    known = {spec.id: spec for spec in wanted if spec.id in numbered and spec not in (config.default, best)}
    return list(known.values())


def observations(records: StudyRecords, round_: int) -> list[Observation]:
    """What the proposer may use: every completely searched setting in measured order, and those under way.

    A boot of another process will be used for all its settings, so these are under way too. The settings of the boot that
    runs here come last, although others may have begun later in another process: the last one is taken for what runs.
    """
    scored = score_of_each(records, round_)

    def observed(spec: RuntimeSpec) -> Observation | None:
        one = scored[spec.id]
        return None if one is None else observation_of(records, spec, one)

    known = records.of_each_searched(("observed", scored_by(records, round_)), observed, round_)
    if records.running is not None:
        own = boot_of(records.running)
        of_specs = zip(records.searched(round_), known, strict=True)
        known = [one for _, one in sorted(of_specs, key=lambda pair: boot_of(pair[0]) == own)]
    task, config = task_of(records.config), records.config
    reserved = [one.spec for one in records.reservations if one.phase == "search" and one.round == round_]
    under_way = {
        spec.id: spec
        for booted in reserved
        for spec in (booted, *map(config.spec, task.sharing(canonical(config.space, task.base, booted.knobs))))
    }
    begun = (observation_of(records, spec) for id_, spec in under_way.items() if scored.get(id_) is None)
    return list(filter(None, chain(known, begun)))


def observation_of(records: StudyRecords, spec: RuntimeSpec, scored: ScoredSetting | None = None) -> Observation | None:
    """A setting as proposers see it, without a score under way; None for one outside the space that is searched."""
    assignment = records.of(spec.id, "assignment", lambda: _assignment_of(records.config, spec))
    if assignment is None:
        return None
    if scored is None:
        return Observation(assignment, None)
    score, seconds = scored.score, scored.boot_s + scored.trials_s
    return Observation(assignment, score.value, score.violation, scored.fault, seconds, scored.boot_s, scored.limits)


def _assignment_of(config: StudyConfig, spec: RuntimeSpec) -> Assignment | None:
    """In the space that is searched; None outside."""
    space, base = config.searched_space, config.default.knobs
    assignment = canonical(space, base, spec.knobs)
    return assignment if is_legal(space, base, assignment) else None


def interrupted(records: StudyRecords, round_: int) -> RuntimeSpec | None:
    """A setting that lacks a workload because its boot was interrupted; None if there is none."""
    return next((spec for spec in records.lacking(round_) if records.left(spec, "search", round_)), None)


def listed(config: StudyConfig) -> list[RuntimeSpec]:
    """The settings that the config lists under `first`."""
    base = config.default.knobs
    return [config.spec(completed(config.space, base, setting)) for setting in config.first]


def before_the_proposer(config: StudyConfig) -> list[RuntimeSpec]:
    """Those, and what a tuner's arithmetic enqueued, with the base's values or else the first ones that make it legal."""
    space, base = config.space, config.default.knobs
    found = listed(config)
    for wanted in space.enqueued:
        plain = completed(space, base, wanted)
        fitting = (one for one in legal(space, base) if holds(wanted, {**base, **one}))
        setting = plain if is_legal(space, base, plain) else next(fitting, None)
        found += [] if setting is None else [config.spec(setting)]
    return found


def _listed(records: StudyRecords, round_: int) -> RuntimeSpec | None:
    return next((spec for spec in before_the_proposer(records.config) if records.left(spec, "search", round_)), None)


def _asked(records: StudyRecords, proposer: Proposer, round_: int) -> RuntimeSpec | None:
    assignment = proposer.ask(observations(records, round_))
    return None if assignment is None else records.config.spec(assignment)
