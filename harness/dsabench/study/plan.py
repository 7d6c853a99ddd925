"""What a study still has to measure, in which order, and what that costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dsabench.config.runtime_kinds import boot_of
from dsabench.config.specs import StudyConfig
from dsabench.model.runtime import (
    MemoryForecast,
    Refuse,
    RuleViolation,
    RuntimeSpec,
    SettingNote,
    no_forecast,
    refuse_nothing,
)
from dsabench.model.space import base_assignment
from dsabench.model.study import Assignment
from dsabench.model.study_result import Finalist, WorkLeft
from dsabench.reporting.numbers import show_duration
from dsabench.results.ablation import changes_of
from dsabench.results.scores import scored_settings
from dsabench.results.study_records import StudyRecords, describe
from dsabench.study.ablation import ablation_boots_left
from dsabench.study.budget import (
    SCORED,
    RunLimits,
    gpu_hours_left,
    trials_left,
    why_ablation_stops,
    why_confirmation_stops,
    why_search_stops,
)
from dsabench.study.forecast import CostEstimate, estimate_cost
from dsabench.study.next_boot import (
    before_the_proposer,
    challenger,
    choose_finalist,
    confirm_boots,
    next_baseline_boot,
    next_confirm_boot,
    next_search_boot,
    observation_of,
    observations,
)
from dsabench.study.proposers import PROPOSERS, Observation, make_proposer
from dsabench.study.proposers.proposer import PLANNED, REFUSED
from dsabench.study.space_check import Overruled, SpaceCheck, check_overruled, sample

if TYPE_CHECKING:
    from dsabench.study.context import SettingRules


@dataclass(frozen=True, slots=True)
class PlannedSetting:
    """A setting that the search will measure, and whether the rules refuse it."""

    label: str
    spec: RuntimeSpec
    refusal: RuleViolation | None = None
    missing: int = 0
    """Number of workloads that are not measured yet."""


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """Progress of a study, and the time that it still takes if nothing fails."""

    config: StudyConfig
    space: SpaceCheck
    cost: CostEstimate
    lanes: int
    boots_done: int
    """Boots used in this round."""
    search_settings: int
    """Settings of the search in the whole round, within the budget."""
    search_boots: int
    """Boots for them, if each is used for all settings that can share it."""
    confirm_boots: int
    """Boots of the confirmation in the whole round; 0 if the space holds only the default."""
    trials_total: int
    """Trials of search and confirmation in the whole round."""
    time_left_s: float | None
    """Seconds left in the budget; None without a time limit."""
    to_score: int = 0
    """Settings that still have to answer the evals of the gate."""

    @property
    def boots_total(self) -> int:
        """Boots at the end of the round, and never fewer than were used already."""
        return max(self.boots_done, self.search_boots + self.confirm_boots)

    @property
    def boots_saved(self) -> int:
        """Boots that are not needed, because a running server is changed to other settings."""
        return self.search_settings - self.search_boots

    @property
    def seconds_left(self) -> float:
        """Estimated seconds, at the measured pace or, before the first measurement, at the assumed one."""
        turns = math.ceil((self.boots_total - self.boots_done) / self.lanes)
        trials = math.ceil(turns * self.trials_total / max(self.boots_total, 1))
        seconds = self.cost.of(turns, trials, self.to_score)
        return seconds if self.time_left_s is None else min(seconds, self.time_left_s)


def make_plan(records: StudyRecords, limits: RunLimits, space: SpaceCheck) -> StudyPlan:
    """Make the plan. This is cheap because no proposer is asked, so it can be made before every boot."""
    budget, workloads = limits.budget, len(records.config.workloads)
    confirm_boots = records.config.boots_to_confirm if space.settings > 1 else 0
    settings, per_boot = space.settings, space.per_boot
    if budget.max_trials is not None:
        settings = min(settings, -(-budget.max_trials // workloads))
    search_boots = math.ceil(settings / per_boot)
    if budget.max_boots is not None:
        search_boots = min(search_boots, max(0, budget.max_boots - confirm_boots))
    cost, done, time_left_s = estimate_cost(records), records.boots(limits.round), None
    if budget.time_s is not None:
        time_left_s = max(0.0, budget.time_s - limits.elapsed_s)
    if time_left_s is not None and cost.measured:
        # Slow boots leave room for fewer settings, but always for the default and one other. Only measured costs may
        # shorten the plan: an assumption may be wrong.
        fit = done + int(time_left_s / cost.of(1, math.ceil(workloads * per_boot))) * limits.lanes
        search_boots = min(search_boots, max(fit - confirm_boots, 2))
    hours_left = gpu_hours_left(records, limits, cost)
    if hours_left is not None and cost.measured and limits.largest:
        fit = done + int(3600 * hours_left / (limits.largest * cost.of(1, math.ceil(workloads * per_boot))))
        search_boots = min(search_boots, max(fit - confirm_boots, 2))
    settings = min(settings, round(search_boots * per_boot))
    search_trials = settings * workloads
    if budget.max_trials is not None:
        search_trials = min(search_trials, budget.max_trials)
    return StudyPlan(
        config=records.config,
        space=space,
        cost=cost,
        lanes=limits.lanes,
        boots_done=done,
        search_settings=settings,
        search_boots=search_boots,
        confirm_boots=confirm_boots,
        trials_total=search_trials + confirm_boots * workloads,
        time_left_s=time_left_s,
        to_score=_to_score(records, limits.round, settings, confirm_boots),
    )


def _to_score(records: StudyRecords, round_: int, settings: int, confirm_boots: int) -> int:
    """The settings that answer the gate, less those that have answered every eval of it."""
    config = records.config
    asked = settings if config.gates_of_settings else SCORED if config.gates and confirm_boots else 0
    answered = Counter(record.trial.runtime.id for record in records.scored if record.round == round_)
    return max(0, asked - sum(count >= len(config.gates) for count in answered.values()))


@dataclass(frozen=True, slots=True)
class GpuHours:
    """GPU hours of the remaining boots. A setting that is not known yet counts as the largest one."""

    hours: float
    open_boots: int
    """Boots whose setting is still unknown, including those of the confirmation."""
    gpus_each: int


@dataclass(frozen=True, slots=True)
class AblationPrice:
    """What it takes to find which changes a winner needs, if the winner has as many as the space allows."""

    changes: int
    boots: int
    seconds: float
    gpu_hours: float | None
    """None if no GPU is known."""

    def line(self) -> str:
        """Such as `if a winner has 8 changes, 56 boots more find which it needs: 6 h 12 min, 49.6 GPU-hours`."""
        hours = "" if self.gpu_hours is None else f", {self.gpu_hours:.1f} GPU-hours"
        took = show_duration(self.seconds)
        return f"if a winner has {self.changes} changes, {self.boots} boots more find which it needs: {took}{hours}"


@dataclass(frozen=True, slots=True)
class DryRun:
    """The plan of a study before it starts, boot by boot."""

    plan: StudyPlan
    upcoming: tuple[PlannedSetting, ...]
    """The settings that will certainly be searched: measured, refused, or to be measured."""
    left: WorkLeft
    overruled: Overruled
    """Settings that the runtime would run with other values than requested."""
    notes: tuple[SettingNote, ...]
    """Notes of the rules about the default setting."""
    gpu_hours: GpuHours | None
    """GPU hours of the remaining boots; None if no GPU is known."""
    version: str
    """Version of the runtime that the plan is for."""
    ablation: AblationPrice | None = None
    """What `ablate` takes at most, in addition; None without it, and once a boot of it is known."""
    memory: tuple[tuple[Assignment, MemoryForecast], ...] = ()
    """What each checked setting takes of a rank's memory, as far as it can be told."""

    @property
    def dollars(self) -> float | None:
        """Price of the remaining boots; None without a price or GPUs."""
        price = self.plan.config.price_per_gpu_hour
        return None if price is None or self.gpu_hours is None else price * self.gpu_hours.hours


def make_dry_run(
    records: StudyRecords, limits: RunLimits, space: SpaceCheck, rules: SettingRules, version: str
) -> DryRun:
    """Make the plan with every setting that is already certain."""
    plan = make_plan(records, limits, space)
    upcoming = foresee(records, limits.round, plan.search_settings, rules.refuse)
    left = work_left(records, limits, plan, upcoming)
    hours = _gpu_hours(plan, upcoming, left, rules)
    return DryRun(
        plan,
        tuple(upcoming),
        left,
        check_overruled(records.config, space.passed, rules.annotate),
        rules.annotate(records.config.default),
        hours,
        version,
        _price_of_ablation(plan, left, 0 if hours is None else hours.gpus_each),
        tuple(_memory_of(records.config, rules)),
    )


def _memory_of(config: StudyConfig, rules: SettingRules) -> Iterator[tuple[Assignment, MemoryForecast]]:
    if rules.memory is no_forecast:
        return
    points, base = sample(config)[0], base_assignment(config.space, config.default.knobs)
    for point in points if base is None or base in points else (base, *points):
        told = rules.memory(config.spec(point))
        if told is not None:
            yield point, told


def _price_of_ablation(plan: StudyPlan, left: WorkLeft, gpus: int) -> AblationPrice | None:
    """(changes + 1) × its boots, as many again of what may go together, and the confirmation of what remains."""
    config, budget = plan.config, plan.config.budget
    if not budget.ablate or left.ablate_boots or not left.boots:
        return None
    changes = max((len(changes_of(config, config.spec(point))) for point in sample(config)[0]), default=0)
    if changes < 2:
        return None
    boots = (changes + 3) * budget.ablate_boots + 2 * budget.confirm_boots
    seconds = plan.cost.each(boots, boots * len(config.workloads))
    return AblationPrice(changes, boots, seconds / plan.lanes, gpus * seconds / 3600 or None)


def foresee(records: StudyRecords, round_: int, settings: int, refuse: Refuse = refuse_nothing) -> list[PlannedSetting]:
    """List the settings of the search that are already certain: measured ones, and those from a proposer that does not
    learn.

    A learning proposer chooses its next settings from results that do not exist yet. Refused settings take no boot.
    """
    config = records.config
    ahead = before_the_proposer(config)
    specs = (config.default, *(one.spec for one in scored_settings(records, round_)), *ahead)
    found = {spec.id: spec for spec in specs}
    refusals = {spec.id: refuse(spec) for spec in found.values()}
    if not PROPOSERS[config.proposer.kind].learns:
        proposer = make_proposer(config)
        known = observations(records, round_)
        if not known and (default := observation_of(records, config.default)) is not None:
            known = [default]
        seen_ahead = (observation_of(records, spec) for spec in ahead if records.missing(spec, "search", round_))
        known = [*known, *(one for one in seen_ahead if one is not None)]
        known = [replace(one, fault=PLANNED) if one.is_under_way else one for one in known]
        while _bootable(refusals) < settings and (assignment := proposer.ask(known)) is not None:
            spec = config.spec(assignment)
            found[spec.id], refusals[spec.id] = spec, refuse(spec)
            known = [*known, Observation(assignment, None, fault=PLANNED if refusals[spec.id] is None else REFUSED)]
    shown = [
        PlannedSetting(describe(records, spec), spec, refusals[spec.id], len(records.missing(spec, "search", round_)))
        for spec in found.values()
    ]
    while _bootable({one.spec.id: one.refusal for one in shown}) > settings:
        shown.pop()
    return shown


def _bootable(refusals: Mapping[str, RuleViolation | None]) -> int:
    return sum(refusal is None for refusal in refusals.values())


def has_next_boot(records: StudyRecords, limits: RunLimits) -> bool:
    """Whether a run that starts now would boot anything."""
    round_ = limits.round
    if why_search_stops(records, limits) is None:
        left, proposer = trials_left(records, limits), make_proposer(records.config)
        if next_baseline_boot(records, round_) or next_search_boot(records, round_, proposer, left):
            return True
    best = choose_finalist(records, round_)
    if best is None:
        return False
    if next_confirm_boot(records, round_, best.spec) is not None:
        return why_confirmation_stops(records, limits) is None
    # With a gate only its verdict tells what is taken apart.
    if records.config.gates or why_ablation_stops(records, limits) is not None:
        return False
    return ablation_boots_left(records, round_, [Finalist(best, 0)]) > 0


def work_left(
    records: StudyRecords, limits: RunLimits, plan: StudyPlan, upcoming: Iterable[PlannedSetting]
) -> WorkLeft:
    """What is not recorded yet; nothing if a run that starts now would boot nothing."""
    if not has_next_boot(records, limits):
        return WorkLeft()
    workloads = len(records.config.workloads)
    boots = trials = 0
    if why_search_stops(records, limits) is None:
        bootable = [one for one in upcoming if one.refusal is None]
        unforeseen = max(0, plan.search_settings - len(bootable))
        boots = len({boot_of(one.spec) for one in bootable if one.missing})
        if unforeseen:
            boots += max(1, plan.search_boots - len({boot_of(one.spec) for one in bootable}))
        trials = sum(one.missing for one in bootable) + unforeseen * workloads
        limit = trials_left(records, limits)
        trials = trials if limit is None else min(trials, limit)
    left = WorkLeft(boots, trials, *_confirmation_left(records, limits, plan, searched=boots == 0))
    if not left.boots and (best := choose_finalist(records, limits.round)) is not None:
        return work_to_ablate(plan, ablation_boots_left(records, limits.round, [Finalist(best, 0)]))
    return _timed(plan, left)


def work_to_confirm(plan: StudyPlan, boots: int) -> WorkLeft:
    """The work of this number of confirmation boots."""
    return _timed(plan, WorkLeft(confirm_boots=boots, confirm_trials=boots * len(plan.config.workloads)))


def work_to_ablate(plan: StudyPlan, boots: int) -> WorkLeft:
    """The work of this number of boots of an ablation."""
    return _timed(plan, WorkLeft(ablate_boots=boots, ablate_trials=boots * len(plan.config.workloads)))


def _timed(plan: StudyPlan, left: WorkLeft) -> WorkLeft:
    """Add the seconds, with all lanes working at the same time."""
    if not left.boots:
        return left
    turns = math.ceil(left.boots / plan.lanes)
    scored = plan.to_score if left.confirm_boots or plan.config.gates_of_settings else 0
    return left.taking(plan.cost.of(turns, math.ceil(turns * left.trials / left.boots), scored))


def _confirmation_left(records: StudyRecords, limits: RunLimits, plan: StudyPlan, *, searched: bool) -> tuple[int, int]:
    """Boots and trials of the confirmation that are missing.

    Before the search ends any setting may become the best one, so all boots count. Once a confirmation has started,
    it continues with the setting that is the best one now.
    """
    round_ = limits.round
    searched = searched or records.boots(round_, "confirm") > 0
    best = challenger(records, round_) if searched else None
    if best is None:
        boots = 0 if searched else plan.confirm_boots
        return boots, boots * len(plan.config.workloads)
    lacking = list(confirm_boots(records, round_, best.spec))
    return len(lacking), sum(len(boot.workloads) for boot in lacking)


def _gpu_hours(
    plan: StudyPlan, upcoming: Iterable[PlannedSetting], left: WorkLeft, rules: SettingRules
) -> GpuHours | None:
    gpus: Callable[[RuntimeSpec], int] = rules.gpus
    bootable = [one for one in upcoming if one.refusal is None]
    known = [one for one in bootable if one.missing] if left.search_boots else []
    booted = {boot_of(one.spec): one.spec for one in known}
    possible, unseen = [one.spec for one in bootable], left.search_boots - len(booted)
    if unseen > 0:
        possible += map(plan.config.spec, sample(plan.config)[0])
    largest, open_boots = rules.largest(possible), unseen + left.confirm_boots + left.ablate_boots
    if largest == 0:
        return None
    cost, trials = plan.cost, left.trials - sum(one.missing for one in known)
    seconds = sum(map(gpus, booted.values())) * cost.each(1, 0)
    seconds += sum(gpus(one.spec) * cost.each(0, one.missing) for one in known)
    seconds += largest * cost.each(open_boots, trials)
    seconds += gpus(plan.config.default) * cost.compile_s
    if left.confirm_boots:
        seconds += largest * plan.to_score * cost.evals_s
    return GpuHours(seconds / 3600, open_boots, largest)
