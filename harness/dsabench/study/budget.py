"""Limits of a run: why the search or the confirmation stops, and what a boot costs."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dsabench.config.runtime_kinds import RuntimeKindInfo, runtime_kinds
from dsabench.config.specs import StudyConfig
from dsabench.model.record import Failed
from dsabench.model.study import Budget
from dsabench.model.workload import Workload
from dsabench.results.study_records import StudyRecords
from dsabench.study.next_boot import choose_finalist, default_has_no_number, interrupted, listed


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Seconds of one boot (start to ready) and of one trial. `measured` is False while these are assumptions."""

    boot_s: float
    trial_s: float
    measured: bool

    def of(self, boots: int, trials: int) -> float:
        """Seconds for this number of boots and trials."""
        return boots * self.boot_s + trials * self.trial_s


def estimate_cost(records: StudyRecords) -> CostEstimate:
    """Estimate from the study's own records: median of the boots, mean of the trials. Without records, use
    assumptions.

    Boots take a median because the first boot on a machine may compile kernels for minutes, which no later one
    does.
    """
    found, kind = records.records, records.config.runtime.kind
    boots = {record.boot: record.boot_s for record in found if record.boot_s is not None}
    durations = [record.duration_s for record in found if not isinstance(record.outcome, Failed)]
    return CostEstimate(
        boot_s=(statistics.median(boots.values()) if boots else None) or runtime_kinds()[kind].assumed_boot_s,
        trial_s=_mean(durations) or _assumed_trial_s(records.config),
        measured=bool(durations),
    )


def _assumed_trial_s(config: StudyConfig) -> float:
    """The assumed seconds of a trial: at least the time until the last request is sent, and for a real model its
    tokens.
    """
    kind = runtime_kinds()[config.runtime.kind]
    assumed = (max(kind.assumed_trial_s, _due_s(one), kind.passes * _tokens_s(one, kind)) for one in config.workloads)
    return math.fsum(assumed) / len(config.workloads)


def _tokens_s(workload: Workload, kind: RuntimeKindInfo) -> float:
    """Seconds of one pass at the assumed speeds. Lengths that come from a dataset are unknown and count 0."""
    if kind.stream_tok_s is None or kind.prefill_tok_s is None:
        return 0.0
    streams = min(workload.max_concurrency or workload.num_prompts, workload.num_prompts)
    decoded_s = workload.num_prompts * (workload.output_len or 0) / (streams * kind.stream_tok_s)
    return decoded_s + workload.num_prompts * (workload.input_len or 0) / kind.prefill_tok_s


def _due_s(workload: Workload) -> float:
    if workload.request_rate is None or workload.ramp_to is not None or workload.sessions is not None:
        return 0.0
    return workload.num_prompts / workload.request_rate


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of a run. Trials and boots count over the whole round, time counts from the start of this run."""

    budget: Budget
    round: int
    started_s: float = field(default_factory=time.monotonic)
    lanes: int = 1
    """Number of servers at the same time."""
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
    measured = (record for record in records.records if not record.is_refusal)
    trials = {record.id: record.trial for record in measured}.values()
    # A transient fault that will be retried does not count yet. Otherwise it would use up the last trial.
    settled = sum(bool(records.settled(trial, "search", limits.round)) for trial in trials)
    under_way = len(records.under_way("search", limits.round))
    return max(0, limits.budget.max_trials - settled - under_way)


def why_search_stops(records: StudyRecords, limits: RunLimits) -> str | None:
    """Return why no further boot of the search may start; None if one may."""
    budget = limits.budget
    if trials_left(records, limits) == 0:
        return f"{budget.max_trials} trials of the search are measured (max_trials)"
    if (reason := _no_boot_left(records, limits)) is not None:
        return reason
    if limits.closed is not None:
        return limits.closed
    if _has_nothing_to_confirm_against(records, limits):
        return "the default gave no number, so nothing can be compared with it (budget.confirm_boots: 0 measures the rest anyway)"
    if (failure := _failure_of_all(records, limits)) is not None:
        return f"every setting failed in the same way, which points to the installation ({failure})"
    return _why_time_ends_search(records, limits)


def _why_time_ends_search(records: StudyRecords, limits: RunLimits) -> str | None:
    """Reserve time for the confirmation, as soon as there is something to confirm.

    If boots are too slow for the whole confirmation, the search still measures the default and one other setting.
    They are then confirmed with as many boots as fit, because a verdict from few boots is better than none.
    """
    time_s = limits.budget.time_s
    if time_s is None:
        return None
    cost, config = estimate_cost(records), records.config
    is_enough = config.budget.confirm_boots == 0 or choose_finalist(records, limits.round) is not None
    turns = 1 + math.ceil(config.boots_to_confirm / limits.lanes) if cost.measured and is_enough else 0
    if limits.elapsed_s + cost.of(turns, turns * len(config.workloads)) <= time_s:
        return None
    return f"the time is {'needed for the confirmation' if turns > 1 else 'up'} ({time_s:.0f} s in all)"


_ALIKE = 3
"""Number of settings that must fail with the same message before the installation is blamed."""


def _failure_of_all(records: StudyRecords, limits: RunLimits) -> str | None:
    """The failure that every setting of the search has in common; None if one was measured or they differ."""
    said: dict[str, str] = {}
    settings: set[str] = set()
    for record in records.records:
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
    return None


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
