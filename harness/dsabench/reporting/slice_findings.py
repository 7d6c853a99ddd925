"""What the errors of the slices' predictions leave them good for."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from dsabench.model.metrics import METRICS
from dsabench.reporting.slice_prediction import Prediction

CLOSE = 0.10
"""An error up to this is small enough to read a deployment's speed from its slice."""
TELLING = 0.05
"""Two deployments that differ less than this are not put in an order, measured or predicted: boots of one setting may
differ by as much."""


@dataclass(frozen=True, slots=True)
class Order:
    """The deployments of one load by one metric, best first, as measured and as predicted."""

    workload: str
    metric: str
    measured: tuple[str, ...]
    predicted: tuple[str, ...]
    pairs: int
    """Pairs that differ by at least `TELLING` when measured: the only ones that there is an order to predict of."""
    agreeing: int
    """Those of them that the slices put in the same order, by at least `TELLING` too."""
    opposed: tuple[str, ...]
    """Those that they put the other way round, as `best > other` when measured."""
    undecided: tuple[str, ...]
    """Those that the slices hold alike, or cannot tell apart because one slice stands for both."""
    too_close: int
    """Pairs that differ less when measured."""
    invented: tuple[str, ...]
    """Those of them that the slices hold apart, as `best > other` when predicted."""
    shown: tuple[str, str]
    """Measured and predicted in one line each: `≈` joins neighbours that differ by less than `TELLING`."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a setting does to a deployment: its value ÷ that of the deployment's first setting − 1."""

    workload: str
    metric: str
    setting: str
    against: str
    measured: float
    predicted: float

    @property
    def agrees(self) -> bool | None:
        """Whether both point the same way; None where the measured one is too small to point anywhere."""
        return None if abs(self.measured) < TELLING else (self.measured > 0) == (self.predicted > 0)


def orders_of(held: Sequence[Prediction], metric: str) -> tuple[Order, ...]:
    """Per load the order of spreads over the GPUs, without what only changes a setting of one of them."""
    return tuple(
        _order(first_of_each)
        for workload in dict.fromkeys(one.workload for one in held)
        if len(first_of_each := _first_of_each_spread(held, workload, metric)) > 1
    )


def effects_of(held: Sequence[Prediction], metric: str) -> tuple[Effect, ...]:
    """Per load and spread, what each further setting does."""
    found = []
    for workload in dict.fromkeys(one.workload for one in held):
        for first in _first_of_each_spread(held, workload, metric):
            found += [
                Effect(
                    workload,
                    metric,
                    other.deployment.name,
                    first.deployment.name,
                    other.measured / first.measured - 1,
                    other.predicted / first.predicted - 1,
                )
                for other in _of(held, workload, metric)
                if other.deployment.spread == first.deployment.spread and other is not first
            ]
    return tuple(found)


def conclusions(held: Sequence[Prediction], metric: str) -> tuple[str, ...]:
    """One line each: absolute speeds, choice between deployments, choice of settings, and how sure this is."""
    lines = [*_of_speeds(held)]
    lines += _of_orders(orders_of(held, metric))
    lines += _of_effects(effects_of(held, metric))
    if single := sum(min(one.boots) < 2 for one in held):
        lines.append(f"{single} of {len(held)} errors rest on one boot of a side: no interval, and boots differ")
    return tuple(lines)


def _of_speeds(held: Sequence[Prediction]) -> Iterable[str]:
    for metric in dict.fromkeys(one.metric for one in held):
        of_metric = [one for one in held if one.metric == metric]
        errors = [one.error for one in of_metric]
        size = statistics.median(map(abs, errors))
        yield (
            f"{metric}: errors from {min(errors):+.1%} to {max(errors):+.1%}, median size {size:.1%}: "
            f"{_may_be_read(of_metric)} (limit {CLOSE:.0%})"
        )


def _may_be_read(of_metric: Sequence[Prediction]) -> str:
    """An error counts as small where its interval is, not where one boot happened to be near another."""
    if any(abs(one.error) > CLOSE for one in of_metric):
        return "a deployment's own figure may not be read from its slice"
    if all(one.interval is not None and max(map(abs, one.interval)) <= CLOSE for one in of_metric):
        return "a deployment's own figure may be read from its slice"
    return "whether a deployment's own figure may be read from its slice takes more boots"


def _of_orders(orders: Sequence[Order]) -> Iterable[str]:
    pairs, agreeing = sum(one.pairs for one in orders), sum(one.agreeing for one in orders)
    opposed = [f"{one.workload} {pair}" for one in orders for pair in one.opposed]
    undecided = [f"{one.workload} {pair}" for one in orders for pair in one.undecided]
    invented = [f"{one.workload} {pair}" for one in orders for pair in one.invented]
    if pairs:
        yield (
            f"deployments: of {pairs} pairs that differ by {TELLING:.0%} or more when measured, slices put {agreeing} in "
            f"that order, {len(opposed)} the other way round, {len(undecided)} alike: "
            f"{_use(opposed, undecided, invented)}"
        )
    elif orders:
        yield f"deployments: none differ by {TELLING:.0%} or more when measured: no order to predict"
    if close := sum(one.too_close for one in orders):
        yield f"deployments: of {close} pairs that differ by less when measured, slices put {len(invented)} apart"
    for what, named in (("the other way round", opposed), ("alike", undecided), ("apart", invented)):
        if named:
            yield f"put {what}: {'; '.join(named)}"


def _use(opposed: Sequence[str], undecided: Sequence[str], invented: Sequence[str]) -> str:
    if opposed:
        return "slices may not choose between them"
    if undecided or invented:
        return "slices may not choose between all of them"
    return "slices may order these"


def _of_effects(effects: Sequence[Effect]) -> Iterable[str]:
    judged = [one for one in effects if one.agrees is not None]
    agreeing = sum(one.agrees is True for one in judged)
    if judged:
        use = "slices may choose these" if agreeing == len(judged) else "slices may not choose between them"
        off = max(abs((1 + one.predicted) / (1 + one.measured) - 1) for one in judged)
        yield f"settings: {agreeing} of {len(judged)} effects point the measured way, off by up to {off:.1%}: {use}"
    elif effects:
        yield f"settings: none has an effect of more than {TELLING:.0%} when measured: nothing to predict"


def _of(held: Sequence[Prediction], workload: str, metric: str) -> list[Prediction]:
    return [one for one in held if (one.workload, one.metric) == (workload, metric)]


def _first_of_each_spread(held: Sequence[Prediction], workload: str, metric: str) -> list[Prediction]:
    """The first measured setting of each, the one without MTP where there is one."""
    found: dict[str, Prediction] = {}
    for one in sorted(_of(held, workload, metric), key=lambda one: one.deployment.shape.mtp):
        found.setdefault(one.deployment.spread, one)
    return list(found.values())


def _order(held: Sequence[Prediction]) -> Order:
    sign = -1 if METRICS[held[0].metric].direction == "maximize" else 1
    by_measured = sorted(held, key=lambda one: sign * one.measured)
    by_predicted = sorted(held, key=lambda one: sign * one.predicted)
    pairs = list(combinations(by_measured, 2))
    apart = [(a, b) for a, b in pairs if _differ(a.measured, b.measured)]
    told = [(a, b) for a, b in apart if _differ(a.predicted, b.predicted)]
    agreeing = [(a, b) for a, b in told if sign * a.predicted < sign * b.predicted]
    return Order(
        held[0].workload,
        held[0].metric,
        tuple(one.deployment.name for one in by_measured),
        tuple(one.deployment.name for one in by_predicted),
        pairs=len(apart),
        agreeing=len(agreeing),
        opposed=_named(pair for pair in told if pair not in agreeing),
        undecided=_named(pair for pair in apart if pair not in told),
        too_close=len(pairs) - len(apart),
        invented=_named(
            (a, b)
            for a, b in combinations(by_predicted, 2)
            if _differ(a.predicted, b.predicted) and not _differ(a.measured, b.measured)
        ),
        shown=(
            _in_a_line([(one.deployment.name, one.measured) for one in by_measured]),
            _in_a_line([(one.deployment.name, one.predicted) for one in by_predicted]),
        ),
    )


def _differ(a: float, b: float) -> bool:
    """Whichever is named first, by at least `TELLING` of the smaller one."""
    return max(a, b) / min(a, b) - 1 >= TELLING


def _named(pairs: Iterable[tuple[Prediction, Prediction]]) -> tuple[str, ...]:
    return tuple(f"{a.deployment.name} > {b.deployment.name}" for a, b in pairs)


def _in_a_line(values: Sequence[tuple[str, float]]) -> str:
    line = values[0][0]
    for (_, before), (name, value) in pairwise(values):
        line += f" {'>' if _differ(before, value) else '≈'} {name}"
    return line
