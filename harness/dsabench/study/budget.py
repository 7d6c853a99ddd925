"""Why the search or the confirmation may not boot any more, and what a boot costs."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from dsabench.config.specs import StudyConfig
from dsabench.model.record import Failed
from dsabench.model.study import Budget
from dsabench.model.workload import Workload
from dsabench.results.study_records import StudyRecords
from dsabench.study.next_boot import begun, default_has_no_number, listed

_ASSUMED_BOOT_S = {"reference": 2.0, "sglang": 300.0, "external": 0.0}
_ASSUMED_TRIAL_S = {"reference": 3.0, "sglang": 10.0, "external": 10.0}
"""Of the reference runtime: what its committed studies took on two cores, 1.0 to 1.4 s a boot and 1.6 to 3.1 s a trial, and some."""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Seconds of one boot (start to ready) and of one trial; `measured` says whether records back them."""

    boot_s: float
    trial_s: float
    measured: bool

    def of(self, boots: int, trials: int) -> float:
        """Seconds for so many boots and trials."""
        return boots * self.boot_s + trials * self.trial_s


def costs(ledger: StudyRecords) -> CostEstimate:
    """Medians of boots and means of trials over the study's own records; assumptions where there are none yet.

    The first boot on a machine may compile kernels for minutes, which no later one does.
    """
    records, kind = ledger.records, ledger.config.runtime.kind
    boots = {record.boot: record.boot_s for record in records if record.boot_s is not None}
    durations = [record.duration_s for record in records if not isinstance(record.outcome, Failed)]
    return CostEstimate(
        boot_s=(statistics.median(boots.values()) if boots else None) or _ASSUMED_BOOT_S[kind],
        trial_s=_mean(durations) or _assumed_trial_s(ledger.config),
        measured=bool(durations),
    )


def _assumed_trial_s(config: StudyConfig) -> float:
    """A flat guess, and at least the time until a workload's last request is due, where one rate says that."""
    flat = _ASSUMED_TRIAL_S[config.runtime.kind]
    return math.fsum(max(flat, _due_s(one)) for one in config.workloads) / len(config.workloads)


def _due_s(workload: Workload) -> float:
    if workload.request_rate is None or workload.ramp_to is not None or workload.sessions is not None:
        return 0.0
    return workload.num_prompts / workload.request_rate


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


@dataclass(slots=True)
class Purse:
    """A budget being spent. Trials and boots count over the whole round, time over this run."""

    budget: Budget
    ledger: StudyRecords
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

    @property
    def confirm_boots(self) -> int:
        """Boots of the confirmation, all sides together."""
        return self.budget.sides(len(self.ledger.config.first)) * self.budget.confirm_boots

    def trials_left(self) -> int | None:
        """Search trials still allowed; None without a limit. What the rules refused was no trial."""
        if self.budget.max_trials is None:
            return None
        measured = (record for record in self.ledger.records if not record.is_refusal)
        trials = {record.id: record.trial for record in measured}.values()
        # A transient fault that waits for its retry is not settled, and must not use up the last trial.
        settled = sum(bool(self.ledger.settled(trial, "search", self.round)) for trial in trials)
        under_way = len(self.ledger.under_way("search", self.round))
        return max(0, self.budget.max_trials - settled - under_way)

    def stops_search(self) -> str | None:
        """Why no further boot of the search may start; None when one may."""
        if self.trials_left() == 0:
            return f"{self.budget.max_trials} trials of the search are measured (max_trials)"
        if (reason := self._no_boot_left()) is not None:
            return reason
        if self.closed is not None:
            return self.closed
        if self._has_nothing_to_confirm_against():
            return "the default gave no number, and nothing can be held against it (budget.confirm_boots: 0 measures the rest all the same)"
        cost = costs(self.ledger)
        workloads = len(self.ledger.config.workloads)
        turns = 1 + math.ceil(self.confirm_boots / self.lanes)
        ahead_s = cost.of(turns, turns * workloads) if cost.measured else 0.0
        if self.budget.time_s is not None and self.elapsed_s + ahead_s > self.budget.time_s:
            return f"the time is needed for the confirmation ({self.budget.time_s:.0f} s in all)"
        return None

    def _has_nothing_to_confirm_against(self) -> bool:
        """Whether the default failed for good, or lacks the metric: whatever a search finds then, no verdict comes of it."""
        ledger = self.ledger
        if ledger.config.budget.confirm_boots == 0 or ledger.missing(ledger.config.default, "search", self.round):
            return False
        return default_has_no_number(ledger, self.round)

    def _no_boot_left(self) -> str | None:
        """Whether max_boots ends the search; None where it does not.

        What a setting lacks that was begun had its place in the budget before the confirmation, also when a record was lost
        since. A new setting may become the best, and has to be confirmed then.
        """
        limit, ledger = self.budget.max_boots, self.ledger
        if limit is None:
            return None
        if begun(ledger, self.round) is not None:
            used, kept = ledger.boots(self.round, "search"), self.confirm_boots
        else:
            used, kept = ledger.boots(self.round), self.confirm_boots - self._confirmed_of_others()
        if used + 1 + kept <= limit:
            return None
        return f"{limit} boots are the limit (max_boots){f', {kept} of them kept for the confirmation' if kept else ''}"

    def _confirmed_of_others(self) -> int:
        """Confirming boots that serve whichever setting is the best: of the default, and of what `first` lists."""
        config, wanted = self.ledger.config, self.budget.confirm_boots
        specs = [config.default, *(listed(config) if self.budget.confirm_first else ())]
        distinct = {spec.id: spec for spec in specs}.values()
        sides = [self.ledger.of_setting(spec, "confirm", self.round).values() for spec in distinct]
        return sum(min(wanted, *map(len, side)) for side in sides)

    def stops_confirmation(self, boots: int = 1) -> str | None:
        """Why no further boot of the confirmation may start, or not so many as are needed; None when they may."""
        if self.budget.max_boots is not None and self.ledger.boots(self.round) + boots > self.budget.max_boots:
            return f"{self.budget.max_boots} boots are the limit (max_boots)"
        if self.closed is not None:
            return self.closed
        ahead_s = costs(self.ledger).of(boots, boots * len(self.ledger.config.workloads)) if boots > 1 else 0.0
        if self.budget.time_s is not None and self.elapsed_s + ahead_s > self.budget.time_s:
            return f"the time is up ({self.budget.time_s:.0f} s)"
        return None
