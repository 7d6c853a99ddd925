"""Limits of a run: why the search or the confirmation stops."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dsabench.model.record import Failed
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import Budget
from dsabench.results.study_records import StudyRecords
from dsabench.study.forecast import CostEstimate, estimate_cost
from dsabench.study.next_boot import choose_finalist, default_has_no_number, interrupted, listed

SCORED = 2
"""Settings that answer the evals of a gate if it passes the first one: that and the default."""


def no_gpus(_: RuntimeSpec) -> int:
    """Of a runtime that counts none."""
    return 0


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of a run. Trials and boots count over the whole round, time counts from the start of this run."""

    budget: Budget
    round: int
    started_s: float = field(default_factory=time.monotonic)
    lanes: int = 1
    """Number of servers at the same time."""
    gpus: Callable[[RuntimeSpec], int] = no_gpus
    """GPUs of a setting."""
    largest: int = 0
    """GPUs of the largest setting: what a boot of an unknown one counts as."""
    closed: str | None = None
    """The reason why nothing may boot, whatever the budget is; None if the budget decides."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since this run started."""
        return time.monotonic() - self.started_s

    def without_time(self) -> RunLimits:
        """The same limits without a time limit, for a run that starts now."""
        return replace(self, budget=self.budget.model_copy(update={"time_s": None}), closed=None)


def trials_left(records: StudyRecords, limits: RunLimits) -> int | None:
    """Number of search trials still allowed; None without a limit. A setting that the rules refused does not count."""
    if limits.budget.max_trials is None:
        return None
    round_ = limits.round
    settled = records.total(("settled trials", round_), lambda spec: _settled_trials(records, spec, round_))
    return max(0, limits.budget.max_trials - settled - len(records.under_way("search", round_)))


def _settled_trials(records: StudyRecords, spec: RuntimeSpec, round_: int) -> int:
    """Of a setting. A transient fault that will be retried does not count yet. Otherwise it would use up the last trial."""
    of_loads = records.of_setting(spec, "search", round_).values()
    return sum(any(not record.is_refusal for record in found) for found in of_loads)


def why_search_stops(records: StudyRecords, limits: RunLimits, boots: int = 1) -> str | None:
    """Return why no further setting may be measured, with a boot of its own or on a running server (0 boots); None if one may."""
    budget = limits.budget
    if trials_left(records, limits) == 0:
        return f"{budget.max_trials} trials of the search are measured (max_trials)"
    if boots and (reason := _no_boot_left(records, limits)) is not None:
        return reason
    if limits.closed is not None:
        return limits.closed
    if _has_nothing_to_confirm_against(records, limits):
        return "the default gave no number, so nothing can be compared with it (budget.confirm_boots: 0 measures the rest anyway)"
    if (failure := _failure_of_all(records, limits)) is not None:
        return f"every setting failed in the same way, which points to the installation ({failure})"
    return _why_time_ends_search(records, limits, boots) or _why_gpu_hours_end_search(records, limits, boots)


def _why_time_ends_search(records: StudyRecords, limits: RunLimits, boots: int) -> str | None:
    """Reserve time for the confirmation, as soon as there is something to confirm.

    If boots are too slow for the whole confirmation, the search still measures the default and one other setting.
    They are then confirmed with as many boots as fit, because a verdict from few boots is better than none.
    """
    time_s = limits.budget.time_s
    if time_s is None:
        return None
    cost, config = estimate_cost(records), records.config
    keeps = cost.measured and _is_enough(records, limits)
    kept = math.ceil(config.boots_to_confirm / limits.lanes)
    ahead_s = cost.of(boots + kept, (1 + kept) * len(config.workloads), SCORED) if keeps else 0.0
    if limits.elapsed_s + ahead_s <= time_s:
        return None
    return f"the time is {'needed for the confirmation' if keeps and kept else 'up'} ({time_s:.0f} s in all)"


def _is_enough(records: StudyRecords, limits: RunLimits) -> bool:
    """Whether there is something to confirm, so that the search may end."""
    return records.config.budget.confirm_boots == 0 or choose_finalist(records, limits.round) is not None


def gpu_hours_left(records: StudyRecords, limits: RunLimits, cost: CostEstimate) -> float | None:
    """What is left of `gpu_hours`, less the boots under way; None without that limit."""
    if limits.budget.gpu_hours is None:
        return None
    one = cost.of(1, len(records.config.workloads))
    under_way = sum(limits.gpus(held.spec) for held in records.reservations if held.round == limits.round)
    return limits.budget.gpu_hours - (records.gpu_seconds(limits.round, limits.gpus) + under_way * one) / 3600


def _why_gpu_hours_end_search(records: StudyRecords, limits: RunLimits, boots: int) -> str | None:
    """Keep GPU-hours for the confirmation, as time is kept."""
    if limits.budget.gpu_hours is None:
        return None
    keeps = estimate_cost(records).measured and _is_enough(records, limits)
    boots += records.config.boots_to_confirm if keeps else 0
    return _why_gpu_hours_end(records, limits, boots, SCORED if keeps else 0)


def _why_gpu_hours_end(records: StudyRecords, limits: RunLimits, boots: int, scored: int = 0) -> str | None:
    cost = estimate_cost(records)
    left = gpu_hours_left(records, limits, cost)
    if left is None:
        return None
    asked = cost.of(boots, boots * len(records.config.workloads), scored) * limits.largest / 3600
    if asked <= left:
        return None
    more = "one more boot" if boots == 1 else f"{boots} boots, those of the confirmation among them,"
    return f"{more} would take {asked:.3g} GPU-hours, and {max(left, 0.0):.3g} of {limits.budget.gpu_hours:g} are left (gpu_hours)"


_ALIKE = 3
"""Number of settings that must fail with the same message before the installation is blamed."""


def _failure_of_all(records: StudyRecords, limits: RunLimits) -> str | None:
    """The failure that every setting of the search has in common; None if one was measured or they differ."""
    said: dict[str, str] = {}
    settings: set[str] = set()
    for record in records:
        outcome = record.outcome
        if record.round != limits.round or record.phase != "search" or record.is_refusal:
            continue
        if not isinstance(outcome, Failed) or outcome.transient:
            return None
        line = f"{outcome.fault}: {outcome.message.partition(chr(10))[0][:200]}"
        said[re.sub(r"0x[0-9a-f]+|\d+", "#", line)] = line
        settings.add(record.trial.runtime.id)
    return next(iter(said.values())) if len(said) == 1 and len(settings) >= _ALIKE else None


def why_confirmation_stops(records: StudyRecords, limits: RunLimits, boots: int = 1) -> str | None:
    """Return why the confirmation may not take this number of further boots; None if it may."""
    most = limits.budget.max_boots
    if most is not None and _counted_boots(records, limits) + boots > most:
        return f"{most} boots are the limit (max_boots)"
    return why_ablation_stops(records, limits, boots)


def why_ablation_stops(records: StudyRecords, limits: RunLimits, boots: int = 1) -> str | None:
    """The same for an ablation, whose boots are beyond max_boots."""
    if limits.closed is not None:
        return limits.closed
    time_s = limits.budget.time_s
    ahead_s = estimate_cost(records).of(boots, boots * len(records.config.workloads)) if boots > 1 else 0.0
    if time_s is not None and limits.elapsed_s + ahead_s > time_s:
        return f"the time is up ({time_s:.0f} s)"
    return _why_gpu_hours_end(records, limits, boots)


def _has_nothing_to_confirm_against(records: StudyRecords, limits: RunLimits) -> bool:
    """Whether the default failed for good or lacks the metric. No verdict is possible then."""
    config = records.config
    if config.budget.confirm_boots == 0 or records.missing(config.default, "search", limits.round):
        return False
    return default_has_no_number(records, limits.round)


def _no_boot_left(records: StudyRecords, limits: RunLimits) -> str | None:
    """Why max_boots ends the search; None if it does not.

    A setting that was interrupted may always be finished: its boot was counted before. A new setting may become the
    best one, so its confirmation must fit too.
    """
    most, to_confirm = limits.budget.max_boots, records.config.boots_to_confirm
    if most is None:
        return None
    if interrupted(records, limits.round) is not None:
        used, kept = records.boots(limits.round, "search"), to_confirm
    else:
        used, kept = _counted_boots(records, limits), to_confirm - _confirmed_of_others(records, limits)
    if used + 1 + kept <= most:
        return None
    return f"{most} boots are the limit (max_boots){f', {kept} of them kept for the confirmation' if kept else ''}"


def _counted_boots(records: StudyRecords, limits: RunLimits) -> int:
    """Boots that max_boots limits."""
    return records.boots(limits.round, "search") + records.boots(limits.round, "confirm")


def _confirmed_of_others(records: StudyRecords, limits: RunLimits) -> int:
    """Number of finished confirmation boots that are useful whichever setting wins: of the default and of `first`."""
    config, wanted = records.config, limits.budget.confirm_boots
    specs = [config.default, *(listed(config) if limits.budget.confirm_first else ())]
    distinct = {spec.id: spec for spec in specs}.values()
    sides = [records.of_setting(spec, "confirm", limits.round).values() for spec in distinct]
    return sum(min(wanted, *map(len, side)) for side in sides)
