"""Choose the next boot: baseline, interrupted, listed, proposed, confirmation.

All of it is derived from the records alone, so that an interrupted study goes on where it was.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from dsabench.config.specs import StudyConfig
from dsabench.model.record import Phase, Trial
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study_result import ObjectiveScore, ScoredSetting
from dsabench.model.workload import Workload
from dsabench.results.scores import is_better, score_setting, scored_settings
from dsabench.results.study_records import StudyRecords, describe
from dsabench.study.proposers import Observation, Proposer
from dsabench.study.session import PlannedTrial
from dsabench.study.space import canonical, completed, is_legal


@dataclass(frozen=True, slots=True)
class BootPlan:
    """One boot: which setting, which workloads, and why."""

    spec: RuntimeSpec
    workloads: tuple[Workload, ...]
    phase: Phase
    label: str
    is_last: bool = False
    """Of default's or best's boots in a confirmation."""

    def errands(self, ledger: StudyRecords, round_: int) -> list[PlannedTrial]:
        """The trials of this boot with their occasions."""
        trials = [Trial(runtime=self.spec, workload=workload) for workload in self.workloads]
        return [PlannedTrial(trial, ledger.next_occasion(trial), self.phase, round_) for trial in trials]


def next_search_boot(ledger: StudyRecords, strategy: Proposer, round_: int, trials_left: int | None) -> BootPlan | None:
    """The default first, then what was begun, then what the config lists, then what the proposer asks for."""
    config = ledger.config
    spec: RuntimeSpec | None = config.default
    if not ledger.left(config.default, "search", round_):
        spec = begun(ledger, round_) or _listed(ledger, round_) or _asked(ledger, strategy, round_)
    if spec is None or trials_left == 0:
        return None
    left = ledger.left(spec, "search", round_)[:trials_left]
    return BootPlan(spec, tuple(left), "search", describe(ledger, spec)) if left else None


def challenger(ledger: StudyRecords, round_: int, refused: Container[str] = ()) -> ScoredSetting | None:
    """The best feasible setting that is neither the default nor refused (ids of specs); None when there is none."""
    best: ScoredSetting | None = None
    for one in scored_settings(ledger, round_):
        if one.spec != ledger.config.default and one.score.is_feasible and one.spec.id not in refused:
            best = one if best is None or is_better(ledger.config.objective, one.score, best.score) else best
    return best


def default_has_no_number(ledger: StudyRecords, round_: int) -> bool:
    """Whether the search has no number of the default: it failed, or was not measured."""
    default = ledger.config.default
    return score_setting(ledger.config.objective, ledger.of_setting(default, "search", round_)).value is None


def next_confirm_boot(ledger: StudyRecords, best: RuntimeSpec, round_: int, heat: int = 0) -> BootPlan | None:
    """Default, rivals and best take turns (AB BA AB …), so that a drift of the machine hits all alike.

    Each heat has boots of the default of its own: another finalist is confirmed at another time.
    """
    return next(_turns_left(ledger, best, round_, heat), None)


def alternatives(ledger: StudyRecords, best: RuntimeSpec, round_: int) -> list[RuntimeSpec]:
    """What is confirmed beside default and best: the settings of `first`, where asked for and where they gave a number."""
    if not ledger.config.budget.confirm_first:
        return []
    scored = {one.spec.id for one in scored_settings(ledger, round_) if one.score.value is not None}
    return [spec for spec in listed(ledger.config) if spec.id in scored and spec not in (ledger.config.default, best)]


def confirm_boots_left(ledger: StudyRecords, best: RuntimeSpec, round_: int, heat: int) -> int:
    """Boots that a heat still takes, if none fails."""
    return sum(1 for _ in _turns_left(ledger, best, round_, heat))


def _turns_left(ledger: StudyRecords, best: RuntimeSpec, round_: int, heat: int) -> Iterator[BootPlan]:
    default, of_heat = ledger.config.default, ledger.config.budget.confirm_boots
    others = [(spec, 0) for spec in alternatives(ledger, best, round_)]
    for pair in range(of_heat):
        sides = [(default, heat * of_heat), *others, (best, 0)]
        for spec, before in sides if pair % 2 == 0 else reversed(sides):
            left = ledger.left(spec, "confirm", round_, boots=before + pair + 1)
            if left:
                label, is_last = describe(ledger, spec), pair == of_heat - 1 and spec in (default, best)
                yield BootPlan(spec, tuple(left), "confirm", label, is_last)


def observations(ledger: StudyRecords, round_: int) -> list[Observation]:
    """What the proposer may know: every completely searched setting, in the order measured, and those under way."""
    known = scored_settings(ledger, round_)
    seen = {one.spec.id for one in known}
    booked = [one.spec for one in ledger.bookings if one.phase == "search" and one.round == round_]
    observed = [observation_of(ledger, one.spec, one.score) for one in known]
    observed += [observation_of(ledger, spec, None) for spec in booked if spec.id not in seen]
    return [observation for observation in observed if observation is not None]


def observation_of(ledger: StudyRecords, spec: RuntimeSpec, score_: ObjectiveScore | None) -> Observation | None:
    """A setting as proposers see it; None for a default that lies outside the space."""
    config, base = ledger.config, ledger.config.default.knobs
    assignment = canonical(config.space, base, spec.knobs)
    if not is_legal(config.space, base, assignment):
        return None
    if score_ is None or score_.value is None:
        return Observation(assignment, None)
    return Observation(assignment, score_.value, score_.violation)


def begun(ledger: StudyRecords, round_: int) -> RuntimeSpec | None:
    """A setting that was interrupted between two of its workloads."""
    for assignment in ledger.searched(round_).values():
        spec = ledger.config.spec(assignment)
        if ledger.left(spec, "search", round_):
            return spec
    return None


def listed(config: StudyConfig) -> list[RuntimeSpec]:
    """The settings that the config wants first."""
    base = config.default.knobs
    return [config.spec(completed(config.space, base, setting)) for setting in config.first]


def _listed(ledger: StudyRecords, round_: int) -> RuntimeSpec | None:
    return next((spec for spec in listed(ledger.config) if ledger.left(spec, "search", round_)), None)


def _asked(ledger: StudyRecords, strategy: Proposer, round_: int) -> RuntimeSpec | None:
    assignment = strategy.ask(observations(ledger, round_))
    return None if assignment is None else ledger.config.spec(assignment)


def choose_finalist(ledger: StudyRecords, round_: int, refused: Container[str] = ()) -> ScoredSetting | None:
    """The setting to hold against the default, where both can be measured and a confirmation is asked for."""
    if ledger.config.budget.confirm_boots == 0 or default_has_no_number(ledger, round_):
        return None
    return challenger(ledger, round_, refused)
