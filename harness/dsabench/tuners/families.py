"""Forms of the rule that `flashmla_auto` follows, simplest first, and how each is fitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dsabench.model.tuned_table import ConstantRule, GridRule, RatioRule
from dsabench.tuners.minimise import ParameterChoices, minimise
from dsabench.tuners.observed import KERNELS, Observed

Rule = ConstantRule | RatioRule | GridRule
Values = Mapping[str, float]
_BEYOND = 1 << 40
"""More tokens than any cache has: an edge there is never reached."""


@dataclass(frozen=True, slots=True)
class Family:
    """One form. `parameters` counts the numbers that are fitted."""

    name: str
    parameters: int
    choices: Callable[[Sequence[Observed]], list[ParameterChoices]]
    build: Callable[[Values], Rule]
    evaluations: int = 600
    """A space of so many cuts is tried whole; in a larger one so many are tried."""

    def fit(self, points: Sequence[Observed], loss: Callable[[Rule], float], seed: int) -> Rule:
        """The rule of this form with the least loss; its cuts lie between the points."""
        return self.build(
            minimise(self.choices(points), lambda v: loss(self.build(v)), evaluations=self.evaluations, seed=seed)
        )


def cuts(values: Sequence[float], at_most: int = 400) -> list[float]:
    """Middles (geometric) between neighbouring values, and one beyond either end; thinned out evenly where many.

    As inclusive lower edges of whole tokens they are rounded up: of 2 and 3 the middle is 2.4, and the edge 3.
    """
    ordered = sorted(set(values))
    between = [(low * high) ** 0.5 for low, high in pairwise(ordered)]
    every = [ordered[0] / 2, *between, ordered[-1] * 2]
    if len(every) <= at_most:
        return every
    return [every[round(rank * (len(every) - 1) / (at_most - 1))] for rank in range(at_most)]


def _ratio_choices(points: Sequence[Observed], at_most: int = 400) -> list[ParameterChoices]:
    return [ParameterChoices("ratio", cuts([p.step.kv_tokens / p.step.new_tokens for p in points], at_most))]


def _few_and_ratio_choices(points: Sequence[Observed]) -> list[ParameterChoices]:
    return [ParameterChoices("new", _new(points, 12)), *_ratio_choices(points, 50)]


def _ratio(values: Values) -> Rule:
    edge = math.ceil(values.get("new", 1))
    return RatioRule(kv_per_new_token=float(f"{values['ratio']:.5g}"), from_new_tokens=edge if edge > 1 else None)


def _new(points: Sequence[Observed], at_most: int = 20) -> list[float]:
    return cuts([p.step.new_tokens for p in points], at_most)


def _kv(points: Sequence[Observed]) -> list[float]:
    return [*cuts([p.step.kv_tokens for p in points], 25), float(_BEYOND)]


def _staircase(steps: int) -> Family:
    """New tokens in `steps` + 1 rows: the first always flashmla_kv, each further one flashmla_sparse below a cut of the
    KV tokens that does not fall from row to row. More new tokens share one dequantising of the prefix, so that the
    sparse kernel can only gain by them.
    """

    def choices(points: Sequence[Observed]) -> list[ParameterChoices]:
        edges = [ParameterChoices(f"new{i}", _new(points)) for i in range(steps)]
        return [*edges, *(ParameterChoices(f"kv{i}", _kv(points)) for i in range(steps))]

    def build(values: Values) -> GridRule:
        edges = sorted({math.ceil(values[f"new{i}"]) for i in range(steps)} - {0, 1})
        kv = sorted(math.ceil(values[f"kv{i}"]) for i in range(steps))[-len(edges) :] if edges else []
        columns = sorted({cut for cut in kv if 1 < cut < _BEYOND})
        rows: list[tuple[str, ...]] = [(KERNELS[1],) * (len(columns) + 1)]
        rows += [tuple(KERNELS[0] if column < cut else KERNELS[1] for column in (1, *columns)) for cut in kv]
        return GridRule.model_validate({"new_tokens": [1, *edges], "kv_tokens": [1, *columns], "kernels": rows})

    return Family(f"staircase of {steps}", 2 * steps, choices, build, evaluations=600 if steps == 1 else 150)


def _threshold_choices(points: Sequence[Observed]) -> list[ParameterChoices]:
    return [ParameterChoices("new", _new(points))]


def _threshold(values: Values) -> Rule:
    edge = math.ceil(values["new"])
    if edge <= 1:
        return ConstantRule(kernel=KERNELS[0])
    return GridRule(new_tokens=(1, edge), kv_tokens=(1,), kernels=((KERNELS[1],), (KERNELS[0],)))


FAMILIES: tuple[Family, ...] = (
    Family("always flashmla_kv", 0, lambda _: [], lambda _: ConstantRule(kernel="flashmla_kv")),
    Family("always flashmla_sparse", 0, lambda _: [], lambda _: ConstantRule(kernel="flashmla_sparse")),
    Family("one ratio", 1, _ratio_choices, _ratio),
    Family("one threshold of new tokens", 1, _threshold_choices, _threshold),
    Family("one ratio, from so many new tokens", 2, _few_and_ratio_choices, _ratio),
    _staircase(1),
    _staircase(2),
)
