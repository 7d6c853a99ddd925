"""Why the search or the confirmation may not boot any more, and what a boot costs."""

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
    """Seconds of one boot (start to ready) and of one trial; `measured` says whether records back them."""

    boot_s: float
    trial_s: float
    measured: bool

    def of(self, boots: int, trials: int) -> float:
        """Seconds for so many boots and trials."""
        return boots * self.boot_s + trials * self.trial_s


def estimate_cost(records: StudyRecords) -> CostEstimate:
    """Medians of boots and means of trials over the study's own records; assumptions where there are none yet.

    The first boot on a machine may compile kernels for minutes, which no later one does.
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
    """A flat guess, and at least the time until a workload's last request is due, where one rate says that.

    Of a real model also what its tokens take.
    """
    kind = runtime_kinds()[config.runtime.kind]
    assumed = (max(kind.assumed_trial_s, _due_s(one), kind.passes * _tokens_s(one, kind)) for one in config.workloads)
    return math.fsum(assumed) / len(config.workloads)


def _tokens_s(workload: Workload, kind: RuntimeKindInfo) -> float:
    """Seconds of a pass at the assumed speeds; what has lengths of the dataset's own counts nothing."""
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
    """What a run may use. Trials and boots count over the whole round, time over this run."""

    budget: Budget
    round: int
    started_s: float = field(default_factory=time.monotonic)
    lanes: int = 1
    """Boots at once."""
    closed: str | None = None
    """Why nothing may be booted at all, whatever the budget; None where the budget decides."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since this run began."""
        return time.monotonic() - self.started_s

    def without_time(self) -> RunLimits:
        """Those of a run that begins now and takes whatever time it takes."""
        return replace(self, budget=self.budget.model_copy(update={"time_s": None}), closed=None)


def trials_left(records: StudyRecords, limits: RunLimits) -> int | None:
    """Search trials still allowed; None without a limit. What the rules refused was no trial."""
    if limits.budget.max_trials is None:
        return None
    measured = (record for record in records.records if not record.is_refusal)
    trials = {record.id: record.trial for record in measured}.values()
    # A transient fault that waits for its retry is not settled, and must not use up the last trial.
    settled = sum(bool(records.settled(trial, "search", limits.round)) for trial in trials)
    under_way = len(records.under_way("search", limits.round))
    return max(0, limits.budget.max_trials - settled - under_way)


def why_search_stops(records: StudyRecords, limits: RunLimits) -> str | None:
    """Why no further boot of the search may start; None when one may."""
    budget = limits.budget
    if trials_left(records, limits) == 0:
        return f"{budget.max_trials} trials of the search are measured (max_trials)"
    if (reason := _no_boot_left(records, limits)) is not None:
        return reason
    if limits.closed is not None:
        return limits.closed
    if _has_nothing_to_confirm_against(records, limits):
        return "the default gave no number, and nothing can be held against it (budget.confirm_boots: 0 measures the rest all the same)"
    if (failure := _failure_of_all(records, limits)) is not None:
        return f"every setting failed alike, so no setting is at fault but the installation ({failure})"
    return _why_time_ends_search(records, limits)


def _why_time_ends_search(records: StudyRecords, limits: RunLimits) -> str | None:
    """Time is kept for the confirmation, but not before there is something to confirm.

    Where boots are slow, so that time does not suffice for all of it, the default and one other setting are searched, and
    confirmed with as many boots as fit: a verdict that rests on few boots says more than none.
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
"""Settings that fail with the same words, from which it is no setting's fault."""


def _failure_of_all(records: StudyRecords, limits: RunLimits) -> str | None:
    """What every setting of the search failed with, where there are several and nothing was measured."""
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
    """Why no further boot of the confirmation may start, or not so many as are needed; None when they may."""
    budget = limits.budget
    if budget.max_boots is not None and records.boots(limits.round) + boots > budget.max_boots:
        return f"{budget.max_boots} boots are the limit (max_boots)"
    if limits.closed is not None:
        return limits.closed
    ahead_s = estimate_cost(records).of(boots, boots * len(records.config.workloads)) if boots > 1 else 0.0
    if budget.time_s is not None and limits.elapsed_s + ahead_s > budget.time_s:
        return f"the time is up ({budget.time_s:.0f} s)"
    return None


def _has_nothing_to_confirm_against(records: StudyRecords, limits: RunLimits) -> bool:
    """Whether the default failed for good, or lacks the metric: whatever a search finds then, no verdict comes of it."""
    config = records.config
    if config.budget.confirm_boots == 0 or records.missing(config.default, "search", limits.round):
        return False
    return default_has_no_number(records, limits.round)


def _no_boot_left(records: StudyRecords, limits: RunLimits) -> str | None:
    """Why max_boots ends the search; None where it does not.

    What a setting lacks that was begun had its place in the budget before the confirmation, also when a record was lost
    since. A new setting may become the best, and has to be confirmed then.
    """
    most, to_confirm = limits.budget.max_boots, records.config.boots_to_confirm
    if most is None:
        return None
    if interrupted(records, limits.round) is not None:
        used, kept = records.boots(limits.round, "search"), to_confirm
    else:
        used, kept = records.boots(limits.round), to_confirm - _confirmed_of_others(records, limits)
    if used + 1 + kept <= most:
        return None
    return f"{most} boots are the limit (max_boots){f', {kept} of them kept for the confirmation' if kept else ''}"


def _confirmed_of_others(records: StudyRecords, limits: RunLimits) -> int:
    """Confirming boots that serve whichever setting is the best: of the default, and of what `first` lists."""
    config, wanted = records.config, limits.budget.confirm_boots
    specs = [config.default, *(listed(config) if limits.budget.confirm_first else ())]
    distinct = {spec.id: spec for spec in specs}.values()
    sides = [records.of_setting(spec, "confirm", limits.round).values() for spec in distinct]
    return sum(min(wanted, *map(len, side)) for side in sides)
