"""From the records of one setting to the one number that the search compares."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.model.record import Measured, Record
from dsabench.model.study import MetricLimit, Objective
from dsabench.model.workload import Workload
from dsabench.stats.percentiles import observations_needed

_OF_SLO = ("goodput_req_s", "slo_attainment")


@dataclass(frozen=True, slots=True)
class Score:
    """`value` is the geometric mean of the objective over the workloads; None when any of them failed.

    `violation` sums, over constraints and workloads, by how much of its limit each is exceeded; 0.0 is feasible.
    """

    value: float | None
    violation: float
    why_not: str | None = None

    @property
    def is_feasible(self) -> bool:
        """Measured everywhere and inside every constraint."""
        return self.value is not None and self.violation == 0.0


def score(objective: Objective, records: Mapping[str, Sequence[Record]]) -> Score:
    """Score one setting from its settled records per workload (the first of each)."""
    values: list[float] = []
    violation = 0.0
    why_not: str | None = None
    for name, settled in records.items():
        outcome = settled[0].outcome if settled else None
        if not isinstance(outcome, Measured):
            return Score(None, 0.0, f"{name}: {_failure(settled)}")
        metric = outcome.metrics.get(objective.metric)
        if metric is None or metric.value <= 0:
            return Score(None, 0.0, f"{name}: no {objective.metric}")
        values.append(metric.value)
        for bound in objective.constraints:
            excess, said = _excess(bound, outcome)
            violation += excess
            why_not = f"{name}: {said}" if said and why_not is None else why_not
    if not values:
        return Score(None, 0.0, "nothing measured")
    return Score(math.exp(math.fsum(math.log(value) for value in values) / len(values)), violation, why_not)


def refuse_unprovable(objective: Objective, workloads: Sequence[Workload]) -> None:
    """Refuse what the workloads can never show: a tail percentile of too few requests, goodput without an SLO.

    Gaps between tokens (ITL) are many per request, so their percentiles are not judged beforehand.

    Raises:
        InputError: names the key, the metric, the workload, and how many requests it takes.

    """
    keys = [("objective", objective.metric)]
    keys += [(f"objective.constraints[{index}]", bound.metric) for index, bound in enumerate(objective.constraints)]
    for key, name in keys:
        if name in _OF_SLO and (lacking := [workload.name for workload in workloads if workload.slo is None]):
            raise InputError(f"{key}.metric: {name} needs an slo in every workload; {lacking[0]} has none")
        family, _, statistic = name.rpartition(".")
        if family.endswith("itl_ms") or not re.fullmatch(r"p\d\d", statistic):
            continue
        least = observations_needed(int(statistic[1:]) / 100)
        for workload in workloads:
            if workload.num_prompts < least:
                raise InputError(
                    f"{key}.metric: {name} takes at least {least} requests; workload {workload.name} has num_prompts: "
                    f"{workload.num_prompts}"
                )


def better(objective: Objective, left: Score, right: Score) -> bool:
    """Whether left beats right: feasible before infeasible, then the objective, then the smaller violation."""
    return _rank(objective, left) > _rank(objective, right)


def _rank(objective: Objective, one: Score) -> tuple[float, float, float]:
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
