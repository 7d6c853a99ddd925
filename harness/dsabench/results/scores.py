"""Score one setting, and compare two settings by the boots that took turns."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from statistics import geometric_mean
from types import MappingProxyType
from typing import NamedTuple

from dsabench.config.specs import StudyConfig
from dsabench.model.capacity import CAPACITY_METRICS
from dsabench.model.environment import without_serials
from dsabench.model.metrics import METRICS
from dsabench.model.numerics import other_precision
from dsabench.model.record import Failed, Measured, Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import MetricLimit, Objective
from dsabench.model.study_result import AccuracyRefusal, ObjectiveScore, ScoredSetting
from dsabench.model.verdict import ABLATE_BOOTS_MIN, BOOTS_MIN, Verdict
from dsabench.model.workload import Workload
from dsabench.results.machines import clock_words, low_clocks, machine_name, machines_of
from dsabench.results.study_records import StudyRecords, describe, spent
from dsabench.stats.compare import (
    ALPHA,
    BootComparison,
    BootValue,
    ComparisonSpec,
    LogRatioEstimate,
    compare_boots,
    judge_family,
)
from dsabench.stats.sequential import is_hopeless, look_levels


def score_setting(
    objective: Objective, records: Mapping[str, Sequence[Record]], levels: Mapping[str, float] = MappingProxyType({})
) -> ObjectiveScore:
    """Score a setting from its records per workload; the first record of each counts. One that lost requests is not feasible: what it
    did not answer cost it no time.

    `levels` says by machine how many times of the first machine's it does; see `machine_levels`.
    """
    values: list[float] = []
    violation = 0.0
    why_not: str | None = None
    for name, settled in records.items():
        outcome = settled[0].outcome if settled else None
        if not isinstance(outcome, Measured):
            return ObjectiveScore(None, 0.0, f"{name}: {_failure(settled)}")
        found = value_of(settled[0], objective.metric)
        if found is None or found.value <= 0:
            return ObjectiveScore(None, 0.0, f"{name}: no {objective.metric}")
        values.append(found.value / levels.get(machine_name(settled[0].environment), 1.0))
        if found.beyond < 0:
            violation += 1.0
            why_not = why_not or f"{name}: not even {found.value:g} met the SLO"
        lost, sent = lost_requests(settled[:1])
        if lost:
            violation += lost / sent
            why_not = why_not or f"{name}: {lost} of {sent} requests failed"
        for bound in objective.constraints:
            excess, said = _excess(bound, outcome)
            violation += excess
            why_not = f"{name}: {said}" if said and why_not is None else why_not
    if not values:
        return ObjectiveScore(None, 0.0, "nothing measured")
    return ObjectiveScore(math.exp(math.fsum(math.log(value) for value in values) / len(values)), violation, why_not)


class WorstRegret(NamedTuple):
    """What a setting loses where it loses most against the best setting of a workload, as a share of that."""

    share: float
    workload: str


def worst_regrets(direction: str, values: Mapping[str, Mapping[str, float]]) -> dict[str, WorstRegret]:
    """Setting → its worst case over the workloads. `values`: setting → workload → positive value."""
    best: dict[str, float] = {}
    better = max if direction == "maximize" else min
    for of_setting in values.values():
        for load, value in of_setting.items():
            best[load] = better(value, best.get(load, value))
    found: dict[str, WorstRegret] = {}
    for setting, of_setting in values.items():
        losses = [(abs(value / best[load] - 1.0), load) for load, value in of_setting.items()]
        if losses:
            found[setting] = WorstRegret(*max(losses))
    return found


def lost_requests(records: Iterable[Record]) -> tuple[int, int]:
    """(requests that failed, requests that were sent) in the measurements among these records."""
    outcomes = [record.outcome for record in records]
    told = [one.metrics["failed"] for one in outcomes if isinstance(one, Measured) and "failed" in one.metrics]
    return int(sum(metric.value for metric in told)), sum(metric.n for metric in told)


def rank_key(objective: Objective, one: ObjectiveScore) -> tuple[float, float, float]:
    """Larger is better: feasible first, then the objective, then the smaller violation."""
    if one.value is None:
        return (0.0, 0.0, 0.0)
    if one.violation > 0:
        return (1.0, -one.violation, 0.0)
    return (2.0, objective.sign * one.value, 0.0)


def against_default(one: ObjectiveScore, default: ObjectiveScore) -> float | None:
    """Relative difference of two scores of one search; None where either has none. One boot a side proves no gain."""
    return None if one.value is None or default.value is None else one.value / default.value - 1.0


def _failure(settled: Sequence[Record]) -> str:
    if not settled:
        return "not measured"
    outcome = settled[0].outcome
    return f"{outcome.stage}: {outcome.fault}" if outcome.kind == "failed" else outcome.kind


def _excess(bound: MetricLimit, outcome: Measured) -> tuple[float, str | None]:
    """The relative excess over a limit, and its description. A missing metric proves nothing, so it counts as 1.0."""
    metric = outcome.metrics.get(bound.metric)
    if metric is None:
        return 1.0, f"{bound.metric} was not measured, so its limit is not proven"
    for limit, over in ((bound.max, 1.0), (bound.min, -1.0)):
        if limit is not None and over * (metric.value - limit) > 0:
            return abs(metric.value - limit) / max(
                abs(limit), 1e-9
            ), f"{bound.metric} {metric.value:.4g} is outside {limit:g}"
    return 0.0, None


Confirmed = Mapping[str, tuple[Record, ...]]
"""Workload → confirmation records."""
EQUIVALENCE = 0.01
"""A difference up to 1 % is too small to choose a default by."""


class LookVerdicts(NamedTuple):
    """The verdicts of a confirmation, and whether they ended it before all its boots."""

    verdicts: tuple[Verdict, ...] = ()
    stopped: str = ""
    """Such as `decided after 3 of 6 boots a side`; empty where it was not stopped."""
    level: float = ALPHA
    """Chance of any false verdict at this look."""


def judge(records: StudyRecords, best: RuntimeSpec, round_: int, index: int = 0) -> LookVerdicts:
    """One verdict per workload for the objective and each constrained metric, corrected for their number.

    The boots of the default are those that took turns with this finalist (number `index`).
    """
    config = records.config
    return judge_confirmed(config, *confirmed_sides(records, best, round_, index), judged_metrics(config.objective))


def judge_confirmed(config: StudyConfig, base: Confirmed, candidate: Confirmed, metrics: Sequence[str]) -> LookVerdicts:
    """Verdicts of a confirmation; with `stop_when_decided` at the first look whose verdict on the objective stands, at the level
    of that look.
    """
    planned, objective = config.budget.confirm_boots, judged_metrics(config.objective)
    # The winner is the better one of two: either could have been called better by chance.
    alpha = ALPHA / 2 if config.budget.confirm_second else ALPHA
    looks = look_levels(planned, alpha) if config.budget.stop_when_decided else {planned: alpha}
    turns = _turns([one.name for one in config.workloads], base, candidate)
    had = min(len(paired.pairs) for paired in turns.values())
    for pairs, level in looks.items():
        if pairs > had or pairs == planned:
            break
        so_far = {name: PairedBoots(paired.pairs[:pairs], 0) for name, paired in turns.items()}
        if (how := _how_it_ends(config, _family(so_far, objective), looks, pairs)) is not None:
            verdicts = judge_family(_family(so_far, metrics), level)
            return LookVerdicts(verdicts, f"{how} after {pairs} of {planned} boots a side", level)
    level = next(level for pairs, level in looks.items() if pairs >= min(had, planned))
    return LookVerdicts(judge_family(_family(turns, metrics), level), level=level)


def _turns(workloads: Iterable[str], base: Confirmed, candidate: Confirmed) -> dict[str, PairedBoots]:
    return {name: pair_boots(base.get(name, ()), candidate.get(name, ())) for name in workloads}


def _family(turns: Mapping[str, PairedBoots], metrics: Sequence[str], least: int = BOOTS_MIN) -> list[BootComparison]:
    return [compare_pairs(paired, name, metric, least=least) for name, paired in turns.items() for metric in metrics]


def _how_it_ends(
    config: StudyConfig, family: Sequence[BootComparison], looks: Mapping[int, float], pairs: int
) -> str | None:
    """Whether the objective is decided under every workload at the look at so many pairs, or will hardly be at the last."""
    planned, verdicts = max(looks), judge_family(family, looks[pairs])
    undecided = [
        one.answer
        for one, verdict in zip(family, verdicts, strict=True)
        if verdict.metric == config.objective.metric and verdict.verdict == "inconclusive"
    ]
    if not undecided:
        return "decided"
    level, equivalence = looks[planned], math.log1p(EQUIVALENCE)
    hopeless = all(
        isinstance(one, LogRatioEstimate) and is_hopeless(one, pairs, planned, alpha=level, equivalence=equivalence)
        for one in undecided
    )
    return "given up, since more boots would hardly decide it," if hopeless else None


def confirmed_sides(
    records: StudyRecords, best: RuntimeSpec, round_: int, index: int = 0
) -> tuple[Confirmed, Confirmed]:
    """The confirmation records of the default and of a finalist. Each finalist has its own boots of the default."""
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


def outdoes(config: StudyConfig, one: Confirmed, other: Confirmed) -> bool:
    """Whether a setting has the better objective in its boots of the confirmation: their geometric mean over all workloads. No setting
    does as long as one of the two lacks boots.
    """
    values = [_confirmed_value(config, side) for side in (one, other)]
    if values[0] is None or values[1] is None:
        return False
    return config.objective.sign * (values[0] - values[1]) > 0


def _confirmed_value(config: StudyConfig, confirmed: Confirmed) -> float | None:
    of_loads = []
    for workload in config.workloads:
        values = [one.value for one in boot_values(confirmed.get(workload.name, ()), config.objective.metric)]
        if len(values) < max(config.budget.confirm_boots, 1) or min(values) <= 0:
            return None
        of_loads.append(geometric_mean(values))
    return geometric_mean(of_loads)


def judge_against(
    records: StudyRecords, best: RuntimeSpec, alternative: RuntimeSpec, round_: int
) -> tuple[Verdict, ...]:
    """Compare with an alternative that was confirmed in the same turns. These verdicts are corrected by themselves."""
    config = records.config
    sides = (records.of_setting(spec, "confirm", round_) for spec in (alternative, best))
    return compare_settings([one.name for one in config.workloads], judged_metrics(config.objective), *sides)


def compare_settings(
    workloads: Iterable[str], metrics: Sequence[str], base: Confirmed, candidate: Confirmed
) -> tuple[Verdict, ...]:
    """Compare confirmation records, given by workload. A workload that a side lacks gives an inconclusive verdict."""
    return judge_family(_family(_turns(workloads, base, candidate), metrics))


def compare_turns(config: StudyConfig, bases: Sequence[Confirmed], candidate: Confirmed) -> list[tuple[Verdict, ...]]:
    """Compare one setting with several that took turns with it, in the objective: a verdict per base and workload. All are corrected
    together, and each takes four pairs. A base without boots has none.
    """
    metric = (config.objective.metric,)
    shared = [[name for name in candidate if base.get(name)] for base in bases]
    turns = [_turns(names, base, candidate) for names, base in zip(shared, bases, strict=True)]
    families = [_family(of_base, metric, ABLATE_BOOTS_MIN) for of_base in turns]
    judged = iter(judge_family([one for family in families for one in family]))
    return [tuple(islice(judged, len(family))) for family in families]


def judged_metrics(objective: Objective) -> tuple[str, ...]:
    """The metric of the objective and those of its constraints."""
    return tuple(dict.fromkeys([objective.metric, *(bound.metric for bound in objective.constraints)]))


def compare_pairs(
    paired: PairedBoots, workload: str, metric: str, *, pilot: int = 0, least: int = BOOTS_MIN
) -> BootComparison:
    """Compare a metric over pairs of boots. A pair in which a side lacks it is dropped and counted.

    For `pilot` and `least` see `ComparisonSpec`.
    """
    both = [(pair, found) for pair in paired.pairs if len(found := boot_values(pair, metric)) == 2]
    base, candidate = ([found[side] for _, found in both] for side in (0, 1))
    records = [record for pair, _ in both for record in pair]
    left_out = paired.alone + len(paired.pairs) - len(both)
    machines = len(machines_of(records))
    notes = [
        f"{left_out} boot{'s' * (left_out > 1)} without a partner left out" if left_out else "",
        _beyond_words(base, candidate),
        f"on {machines} machines, each pair on one" if machines > 1 else "",
        clock_words(low_clocks(records)),
    ]
    return compare_boots(
        ComparisonSpec(metric, workload, METRICS[metric].direction, True, EQUIVALENCE, pilot=pilot, least=least),
        base,
        candidate,
        note="; ".join(filter(None, notes)),
    )


@dataclass(frozen=True, slots=True)
class PairedBoots:
    """Boots of two settings under one workload, paired as they stood beside each other."""

    pairs: tuple[tuple[Record, Record], ...]
    """Base and candidate. Either may have failed."""
    alone: int
    """Number of boots without a partner."""

    @property
    def apart_s(self) -> float:
        """The longest time between the two measurements of a pair, in seconds."""
        return max((_between_s(*pair) for pair in self.pairs), default=0.0)

    @property
    def took_turns(self) -> bool:
        """Whether the boots of every pair were neighbours in time on one machine, without a long pause between them."""
        return self.alternate and self.apart_s <= BESIDE_S

    @property
    def alternate(self) -> bool:
        """Whether they were neighbours in time on one machine, with any pause between them. An interrupted run may
        continue days later.
        """
        return self.share_machine and (self._are_of_lanes or self._are_neighbours)

    def without_pauses(self) -> PairedBoots:
        """Drop the pairs with a long pause between their boots, and count those as boots without a partner."""
        pairs = tuple(pair for pair in self.pairs if _between_s(*pair) <= BESIDE_S)
        return PairedBoots(pairs, self.alone + 2 * (len(self.pairs) - len(pairs)))

    @property
    def share_machine(self) -> bool:
        """Whether both boots of every pair ran on one machine, with the same kind of hardware in use. The runtimes may differ, as
        before and after a patch.
        """
        return all(
            len(machines_of(pair)) == 1 and len({without_serials(one.environment.hardware) for one in pair}) == 1
            for pair in self.pairs
        )

    @property
    def _are_of_lanes(self) -> bool:
        return any(map(_is_of_lanes, chain.from_iterable(self.pairs)))

    @property
    def _are_neighbours(self) -> bool:
        order = sorted((record.started_at, number) for number, pair in enumerate(self.pairs) for record in pair)
        numbers = [number for _, number in order]
        return numbers[::2] == numbers[1::2]


BESIDE_S = 1800.0
"""Seconds between two measurements after which the state of the machine may have changed."""


def pair_boots(base: Sequence[Record], candidate: Sequence[Record]) -> PairedBoots:
    """Pair the confirmation records of two settings by their turn in the journal.

    A failed boot keeps its turn, so the later pairs stay together. Old records without a turn are paired with their
    neighbour in time. Boots of the base that took turns with another finalist, before or after these, are ignored.
    """
    of_turn = [{(one.round, one.turn): one for one in side if one.turn is not None} for side in (base, candidate)]
    pairs = [(of_turn[0][turn], record) for turn, record in of_turn[1].items() if turn in of_turn[0]]
    taken = set(of_turn[1])
    beside = [one for one in of_turn[0] if _is_between(one, [turn for turn in taken if turn[0] == one[0]])]
    alone = len(taken) + len(beside) - 2 * len(pairs)
    older = [[record for record in side if record.turn is None] for side in (base, candidate)]
    more = _nearest(*older) if any(map(_is_of_lanes, (*older[0], *older[1]))) else _neighbours(*older)
    in_order = sorted((*more.pairs, *pairs), key=lambda pair: pair[1].started_at)
    return PairedBoots(tuple(in_order), more.alone + alone)


def _is_between(turn: tuple[int, int], taken: Sequence[tuple[int, int]]) -> bool:
    """Whether the base's turn lies among those of the candidate, or would be the next one."""
    return bool(taken) and min(taken) <= turn <= (turn[0], max(taken)[1] + 1)


def _nearest(base: Sequence[Record], candidate: Sequence[Record]) -> PairedBoots:
    """Pair boots of parallel lanes, which have no order: each with the one that started at the nearest time."""
    unused, pairs = list(base), list[tuple[Record, Record]]()
    for record in candidate if unused else ():
        if unused:
            partner = min(unused, key=lambda one: abs(one.started_at - record.started_at))
            unused.remove(partner)
            pairs.append((partner, record))
    return PairedBoots(tuple(pairs), len(candidate) - len(pairs))


def _neighbours(base: Sequence[Record], candidate: Sequence[Record]) -> PairedBoots:
    """Pair each boot with the next one in time, if that is of the other setting."""
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
    """Seconds from the end of the first measurement to the start of the second; 0 if they overlap."""
    first, second = sorted((one, other), key=lambda record: record.started_at)
    return max(0.0, (second.started_at - first.started_at).total_seconds() - first.duration_s)


def in_turns(config: StudyConfig, base: Confirmed, candidate: Confirmed) -> str:
    """`in turns` if the records prove it, else what they show instead."""
    paired = [pair_boots(base.get(one.name, ()), candidate.get(one.name, ())) for one in config.workloads]
    if all(one.took_turns for one in paired):
        return "in turns"
    apart_min = max(one.apart_s for one in paired) / 60
    if apart_min * 60 > BESIDE_S:
        return f"not in turns: up to {apart_min:.0f} minutes between the two of a pair"
    shared = all(one.share_machine for one in paired)
    return f"not in turns: {'other boots stood between those of a pair' if shared else 'on several machines'}"


def levels(family: Sequence[Verdict], level: float = ALPHA) -> str:
    """The confidence levels of several verdicts, such as `95 to 98.8 % (Holm)`."""
    tested = sum(verdict.ci_low is not None for verdict in family)
    alone = f"{100 * (1 - level):.3g}"
    return f"{alone} %" if tested < 2 else f"{alone} to {100 * (1 - level / tested):.3g} % (Holm)"


def boot_values(records: Sequence[Record], metric: str) -> list[BootValue]:
    """The metric of each record that has it, with the boot."""
    return [value for record in records if (value := value_of(record, metric)) is not None]


def value_of(record: Record, metric: str) -> BootValue | None:
    """A metric of one record, with the boot. A capacity is at most the lowest load where not even that met the SLO, and at least the
    highest where that did.
    """
    outcome, workload = record.outcome, record.trial.workload
    if not isinstance(outcome, Measured):
        return None
    known = outcome.metrics.get(metric)
    if isinstance(workload, Workload) and outcome.probes and metric == CAPACITY_METRICS[workload.load_key]:
        if known is None:
            return BootValue(record.boot, min(one.load for one in outcome.probes), beyond=-1)
        return BootValue(record.boot, known.value, beyond=int(known.value == getattr(workload, workload.load_key)))
    return None if known is None else BootValue(record.boot, known.value)


def _beyond_words(*sides: Sequence[BootValue]) -> str:
    """How many boots of base and candidate stand for more or less than their value."""
    said = []
    for name, values in zip(("base", "candidate"), sides, strict=True):
        for sign, load in ((-1, "no load, so the lowest counts"), (1, "the highest load")):
            if many := sum(one.beyond == sign for one in values):
                said.append(f"{many} boot{'s' * (many > 1)} of the {name} met the SLO under {load}")
    return ", ".join(said)


def machine_levels(metric: str, of_default: Iterable[Sequence[Record]]) -> dict[str, float]:
    """Machine → what the default does on it, as a multiple of what it does on the machine where it was measured first: the geometric
    mean over the workloads. Without a machine where it was not measured.

    Args:
        metric: of the objective.
        of_default: the default's records of the search, of each workload.

    """
    of_loads, logs = list(of_default), defaultdict[str, list[float]](list)
    for boots in of_loads:
        values: dict[str, float] = {}
        for record in boots:
            if (found := value_of(record, metric)) is not None and found.value > 0:
                values.setdefault(machine_name(record.environment), found.value)
        for machine, value in values.items():
            logs[machine].append(math.log(value / next(iter(values.values()))))
    return {
        machine: math.exp(math.fsum(of_machine) / len(of_machine))
        for machine, of_machine in logs.items()
        if len(of_machine) == len(of_loads)
    }


def scored_settings(records: StudyRecords, round_: int) -> list[ScoredSetting]:
    """Every completely searched setting, in the order measured. What another machine than the study's first one measured is compared
    by what the default does on both.
    """
    by = scored_by(records, round_)
    found = records.of_each_searched(by, lambda spec: _scored(records, spec, by), round_)
    return [one for one in found if one is not None]


def score_of_each(records: StudyRecords, round_: int) -> Mapping[str, ScoredSetting | None]:
    """Id of a setting → its score; None for one that is not completely searched."""
    by = scored_by(records, round_)
    return records.of_each(by, lambda spec: _scored(records, spec, by))


class ScoredBy(NamedTuple):
    """What the scores of a round follow from, beside the records of their settings."""

    round: int
    levels: tuple[tuple[str, float], ...]
    """Machine, and what the default does on it; see `machine_levels`."""


def scored_by(records: StudyRecords, round_: int) -> ScoredBy:
    """That of a round."""
    of_default = records.of_setting(records.config.default, "search", round_).values()
    return ScoredBy(round_, tuple(machine_levels(records.config.objective.metric, of_default).items()))


def _scored(records: StudyRecords, spec: RuntimeSpec, by: ScoredBy) -> ScoredSetting | None:
    if records.missing(spec, "search", by.round):
        return None
    of_loads = records.of_setting(spec, "search", by.round)
    first = [one[0] for one in of_loads.values()]
    boot_s, trials_s = (math.fsum(seconds for _, seconds in part) for part in spent(first))
    score = score_setting(records.config.objective, of_loads, dict(by.levels))
    score = score.refused(records.refusals.get(spec.id) or unproven(records.config, spec))
    fault = None if score.value is not None else _fault_of(first)
    limits = frozenset(one.bottleneck.limit for one in first if one.bottleneck and one.bottleneck.limit)
    return ScoredSetting(spec, describe(records, spec), score, fault, boot_s, trials_s, limits)


def unproven(config: StudyConfig, spec: RuntimeSpec) -> AccuracyRefusal | None:
    """Why a setting cannot win where the objective asks for the default's numerics; None if it can."""
    if config.objective.numerics == "any" or not (knobs := other_precision(config.default, spec)):
        return None
    return AccuracyRefusal(1.0, f"accuracy unproven: {', '.join(knobs)}")


def _fault_of(records: Iterable[Record]) -> str:
    failed = ((record, record.outcome) for record in records if isinstance(record.outcome, Failed))
    faults = ("refused" if record.is_refusal else outcome.fault for record, outcome in failed)
    return next(faults, "no_metric")
