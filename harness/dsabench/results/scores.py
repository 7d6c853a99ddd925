"""Score one setting, and compare two settings by the boots that took turns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


def judge(records: StudyRecords, best: RuntimeSpec, round_: int, index: int = 0) -> tuple[Verdict, ...]:
    """A verdict per workload for the objective and each constrained metric, corrected over the family.

    The default's boots are those that took turns with this finalist, counted by `index`.
    """
    return compare_settings(records.config, *confirmed_sides(records, best, round_, index))


def confirmed_sides(
    records: StudyRecords, best: RuntimeSpec, round_: int, index: int = 0
) -> tuple[Confirmed, Confirmed]:
    """The confirming records of the default, which each finalist has of its own, and of the finalist."""
    config, of_finalist = records.config, max(records.config.budget.confirm_boots, 1)
    base = {
        name: tuple(
            record
            for place, record in enumerate(found)
            if (place if record.turn is None else record.turn) // of_finalist == index
        )
        for name, found in records.of_setting(config.default, "confirm", round_).items()
    }
    return base, records.of_setting(best, "confirm", round_)


def judge_against(
    records: StudyRecords, best: RuntimeSpec, alternative: RuntimeSpec, round_: int
) -> tuple[Verdict, ...]:
    """The same against another setting that was confirmed in the same turns; a family of its own."""
    base, candidate = (records.of_setting(spec, "confirm", round_) for spec in (alternative, best))
    return compare_settings(records.config, base, candidate)


def compare_settings(config: StudyConfig, base: Confirmed, candidate: Confirmed) -> tuple[Verdict, ...]:
    """The same of records that the caller chose, by workload; one that a side lacks is undecided."""
    metrics = dict.fromkeys([config.objective.metric, *(bound.metric for bound in config.objective.constraints)])
    family = []
    for workload in config.workloads:
        paired = pair_boots(base.get(workload.name, ()), candidate.get(workload.name, ()))
        for metric in metrics:
            both = [pair for pair in paired.pairs if all(_has(record, metric) for record in pair)]
            left_out = paired.alone + len(paired.pairs) - len(both)
            family.append(
                compare_boots(
                    ComparisonSpec(
                        metric, workload.name, METRICS[metric].direction, paired=True, equivalence=EQUIVALENCE
                    ),
                    boot_values([pair[0] for pair in both], metric),
                    boot_values([pair[1] for pair in both], metric),
                    note=f"{left_out} boot{'s' * (left_out > 1)} without a partner left out" if left_out else "",
                )
            )
    return judge_family(family)


@dataclass(frozen=True, slots=True)
class PairedBoots:
    """Boots of two settings under one workload, as they stood beside each other."""

    pairs: tuple[tuple[Record, Record], ...]
    """Base and candidate; either may have failed."""
    alone: int
    """Boots without one of the other setting beside them."""

    @property
    def apart_s(self) -> float:
        """The longest time that passed between the two measurements of a pair."""
        return max((_between_s(*pair) for pair in self.pairs), default=0.0)

    @property
    def took_turns(self) -> bool:
        """Whether every pair stood beside each other: in one environment, with no long pause between both."""
        same = all(one.environment.fingerprint == other.environment.fingerprint for one, other in self.pairs)
        return same and self.apart_s <= BESIDE_S


BESIDE_S = 1800.0
"""Seconds between two measurements from which what the machine did meanwhile need not be the same for both."""


def pair_boots(base: Sequence[Record], candidate: Sequence[Record]) -> PairedBoots:
    """Pair the confirming records of two settings by the turn that the journal gives them.

    A boot that failed keeps its turn, so that none after it moves to another partner. Records of versions that wrote no turn
    are paired by time: each with its neighbour of the other setting. Boots of the base that took turns with another finalist,
    before these or after them, count as nothing.
    """
    of_turn = [{record.turn: record for record in side if record.turn is not None} for side in (base, candidate)]
    pairs = [(of_turn[0][turn], record) for turn, record in of_turn[1].items() if turn in of_turn[0]]
    beside = [turn for turn in of_turn[0] if of_turn[1] and min(of_turn[1]) <= turn <= max(of_turn[1]) + 1]
    alone = len(of_turn[1]) + len(beside) - 2 * len(pairs)
    older = [[record for record in side if record.turn is None] for side in (base, candidate)]
    more = _nearest(*older) if any(map(_is_of_lanes, (*older[0], *older[1]))) else _neighbours(*older)
    return PairedBoots((*more.pairs, *pairs), more.alone + alone)


def _nearest(base: Sequence[Record], candidate: Sequence[Record]) -> PairedBoots:
    """Of boots at once, which are in no order: each with the one that began nearest to it."""
    unused, pairs = list(base), list[tuple[Record, Record]]()
    for record in candidate if unused else ():
        if unused:
            partner = min(unused, key=lambda one: abs(one.started_at - record.started_at))
            unused.remove(partner)
            pairs.append((partner, record))
    return PairedBoots(tuple(pairs), len(candidate) - len(pairs))


def _neighbours(base: Sequence[Record], candidate: Sequence[Record]) -> PairedBoots:
    """Each with the next one in time, where that is of the other setting."""
    sides = [(record, False) for record in base] + [(record, True) for record in candidate]
    order = sorted(sides, key=lambda one: one[0].started_at)
    places = [place for place, (_, is_candidate) in enumerate(order) if is_candidate]
    order = order[max(places[0] - 1, 0) : places[-1] + 2] if places else []
    pairs: list[tuple[Record, Record]] = []
    alone = 0
    while order:
        first, is_candidate = order.pop(0)
        if order and order[0][1] != is_candidate:
            second = order.pop(0)[0]
            pairs.append((second, first) if is_candidate else (first, second))
        else:
            alone += 1
    return PairedBoots(tuple(pairs), alone)


def _is_of_lanes(record: Record) -> bool:
    return any(label.startswith("one of ") for label in record.labels)


def _between_s(one: Record, other: Record) -> float:
    """From the end of the first measurement to the start of the second; 0 where they overlap."""
    first, second = sorted((one, other), key=lambda record: record.started_at)
    return max(0.0, (second.started_at - first.started_at).total_seconds() - first.duration_s)


def _has(record: Record, metric: str) -> bool:
    return isinstance(record.outcome, Measured) and metric in record.outcome.metrics


def in_turns(config: StudyConfig, base: Confirmed, candidate: Confirmed) -> str:
    """How the boots of two settings stood: `in turns`, or what the records show instead."""
    paired = [pair_boots(base.get(one.name, ()), candidate.get(one.name, ())) for one in config.workloads]
    if all(one.took_turns for one in paired):
        return "in turns"
    apart_min = max(one.apart_s for one in paired) / 60
    return (
        f"not in turns: up to {apart_min:.0f} minutes between the two of a pair"
        if apart_min * 60 > BESIDE_S
        else "not in turns: in several environments"
    )


def levels(family: Sequence[Verdict]) -> str:
    """The levels of a family's intervals, as `95 to 98.8 % (Holm)`: each verdict's own stands in its reason."""
    tested = sum(verdict.ci_low is not None for verdict in family)
    alone = f"{100 * (1 - ALPHA):.3g}"
    return f"{alone} %" if tested < 2 else f"{alone} to {100 * (1 - ALPHA / tested):.3g} % (Holm)"


def boot_values(records: Sequence[Record], metric: str) -> list[BootValue]:
    """The metric of every record that has it, with the boot it came from."""
    return [
        BootValue(record.boot, outcome.metrics[metric].value)
        for record in records
        if isinstance(outcome := record.outcome, Measured) and metric in outcome.metrics
    ]


def scored_settings(records: StudyRecords, round_: int) -> list[ScoredSetting]:
    """Every completely searched setting, in the order measured."""
    found = []
    for assignment in records.searched(round_).values():
        spec = records.config.spec(assignment)
        if not records.missing(spec, "search", round_):
            scored = score_setting(records.config.objective, records.of_setting(spec, "search", round_))
            found.append(ScoredSetting(spec, describe(records, spec), scored))
    return found
