"""Score one setting, and compare two settings by the boots that took turns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dsabench.config.specs import StudyConfig
from dsabench.model.metrics import METRICS
from dsabench.model.record import Measured, Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import MetricLimit, Objective
from dsabench.model.study_result import ObjectiveScore, ScoredSetting
from dsabench.model.verdict import Verdict
from dsabench.results.study_records import StudyRecords, describe
from dsabench.stats.compare import ALPHA, BootValue, ComparisonSpec, compare_boots, judge_family


def score_setting(objective: Objective, records: Mapping[str, Sequence[Record]]) -> ObjectiveScore:
    """Score one setting from its settled records per workload (the first of each)."""
    values: list[float] = []
    violation = 0.0
    why_not: str | None = None
    for name, settled in records.items():
        outcome = settled[0].outcome if settled else None
        if not isinstance(outcome, Measured):
            return ObjectiveScore(None, 0.0, f"{name}: {_failure(settled)}")
        metric = outcome.metrics.get(objective.metric)
        if metric is None or metric.value <= 0:
            return ObjectiveScore(None, 0.0, f"{name}: no {objective.metric}")
        values.append(metric.value)
        for bound in objective.constraints:
            excess, said = _excess(bound, outcome)
            violation += excess
            why_not = f"{name}: {said}" if said and why_not is None else why_not
    if not values:
        return ObjectiveScore(None, 0.0, "nothing measured")
    return ObjectiveScore(math.exp(math.fsum(math.log(value) for value in values) / len(values)), violation, why_not)


def is_better(objective: Objective, left: ObjectiveScore, right: ObjectiveScore) -> bool:
    """Whether left beats right: feasible before infeasible, then the objective, then the smaller violation."""
    return _rank(objective, left) > _rank(objective, right)


def _rank(objective: Objective, one: ObjectiveScore) -> tuple[float, float, float]:
    if one.value is None:
        return (0.0, 0.0, 0.0)
    if one.violation > 0:
        return (1.0, -one.violation, 0.0)
    return (2.0, one.value if objective.direction == "maximize" else -one.value, 0.0)


def _failure(settled: Sequence[Record]) -> str:
    if not settled:
        return "not measured"
    outcome = settled[0].outcome
    return f"{outcome.stage}: {outcome.fault}" if outcome.kind == "failed" else outcome.kind


def _excess(bound: MetricLimit, outcome: Measured) -> tuple[float, str | None]:
    """How far outside the bound, relative to it, and the words for it. A metric that is absent proves nothing: 1.0."""
    metric = outcome.metrics.get(bound.metric)
    if metric is None:
        return 1.0, f"{bound.metric} is absent, so its limit is unproven"
    for limit, over in ((bound.max, 1.0), (bound.min, -1.0)):
        if limit is not None and over * (metric.value - limit) > 0:
            return abs(metric.value - limit) / max(
                abs(limit), 1e-9
            ), f"{bound.metric} {metric.value:.4g} is outside {limit:g}"
    return 0.0, None


Confirmed = Mapping[str, tuple[Record, ...]]
"""Workload → records."""
EQUIVALENCE = 0.01
"""A difference of 1 % or less matters to nobody's choice of a default."""


def judge(ledger: StudyRecords, best: RuntimeSpec, round_: int, index: int = 0) -> tuple[Verdict, ...]:
    """A verdict per workload for the objective and each constrained metric, corrected over the family.

    The default's boots are those that took turns with this finalist, counted by `index`.
    """
    config = ledger.config
    of_finalist = slice(index * config.budget.confirm_boots, (index + 1) * config.budget.confirm_boots)
    base = {name: found[of_finalist] for name, found in ledger.of_setting(config.default, "confirm", round_).items()}
    return compare_settings(config, base, ledger.of_setting(best, "confirm", round_))


def judge_against(ledger: StudyRecords, best: RuntimeSpec, rival: RuntimeSpec, round_: int) -> tuple[Verdict, ...]:
    """The same against another setting that was confirmed in the same turns; a family of its own."""
    base, candidate = (ledger.of_setting(spec, "confirm", round_) for spec in (rival, best))
    return compare_settings(ledger.config, base, candidate)


def compare_settings(config: StudyConfig, base: Confirmed, candidate: Confirmed) -> tuple[Verdict, ...]:
    """The same of records that the caller chose, by workload; one that a side lacks is undecided."""
    metrics = dict.fromkeys([config.objective.metric, *(bound.metric for bound in config.objective.constraints)])
    family = [
        compare_boots(
            ComparisonSpec(metric, workload.name, METRICS[metric].direction, paired=True, equivalence=EQUIVALENCE),
            boot_values(base.get(workload.name, ()), metric),
            boot_values(candidate.get(workload.name, ()), metric),
        )
        for workload in config.workloads
        for metric in metrics
    ]
    return judge_family(family)


def levels(family: Sequence[Verdict]) -> str:
    """The levels of a family's intervals, as `95 to 98.8 % (Holm)`: each verdict's own stands in its reason."""
    tested = sum(verdict.ci_low is not None for verdict in family)
    alone = f"{100 * (1 - ALPHA):.3g}"
    return f"{alone} %" if tested < 2 else f"{alone} to {100 * (1 - ALPHA / tested):.3g} % (Holm)"


def boot_values(records: tuple[Record, ...], metric: str) -> list[BootValue]:
    """The metric of every record that has it, with the boot it came from."""
    return [
        BootValue(record.boot, outcome.metrics[metric].value)
        for record in records
        if isinstance(outcome := record.outcome, Measured) and metric in outcome.metrics
    ]


def scored_settings(ledger: StudyRecords, round_: int) -> list[ScoredSetting]:
    """Every completely searched setting, in the order measured."""
    found = []
    for assignment in ledger.searched(round_).values():
        spec = ledger.config.spec(assignment)
        if not ledger.missing(spec, "search", round_):
            scored = score_setting(ledger.config.objective, ledger.of_setting(spec, "search", round_))
            found.append(ScoredSetting(spec, describe(ledger, spec), scored))
    return found
