"""The kernel choice of `flashmla_auto`: every form fitted, cross-validated, the simplest within the noise taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dsabench.model.tuned_table import ShapeGains, SparseKernel, choose
from dsabench.model.value import digest
from dsabench.tuners.families import FAMILIES, Family, Rule
from dsabench.tuners.observed import KERNELS, Observed
from dsabench.tuners.prefill_mix import Step

Array = npt.NDArray[np.float64]

_FOLDS = 5
_SPREAD = 0.2
"""Share of the weight that all shapes have equally, so that none that the mix does not name is free to be slow."""
_HARM = 0.01
"""A shape slower than under the shipped rule by more than this counts ten times; so does one in the choice of a form."""
_MATTERS = 0.01
"""Share of time that a simpler form may not cost, however little is known."""
_MATTERS_ONCE = 0.05
"""The same at any one shape, however little weight it has: another mix may be made of it."""


@dataclass(frozen=True, slots=True)
class Fit:
    """One form. Regrets are mean shares of time lost against the faster kernel of each shape."""

    family: Family
    rule: Rule
    """Fitted to all shapes that fits may see."""
    regret: float
    """Cross-validated."""
    held_out: float | None
    """On the shapes that no fit saw; None where there are none."""
    worst: float
    """Largest share of time lost against the shipped rule at any one shape."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result."""

    chosen: Fit
    fits: tuple[Fit, ...]
    regret_shipped: float
    regret_static: float
    static: SparseKernel
    gains: ShapeGains
    noise: float
    """Relative error of the times: a difference of regrets below it decides nothing."""
    shapes: int


@dataclass(frozen=True, slots=True)
class Case:
    """Points with their weights, and the rule that is shipped for them."""

    points: tuple[Observed, ...]
    weights: Array
    shipped: Rule

    def kernels(self, rule: Rule) -> list[SparseKernel]:
        """What a rule takes at each point."""
        steps = (point.step for point in self.points)
        return [choose(rule, new_tokens=step.new_tokens, kv_tokens=step.kv_tokens) for step in steps]

    def lost(self, kernels: Sequence[SparseKernel]) -> Array:
        """Share of time lost against the faster kernel, per point."""
        return np.asarray([point.lost(kernel) for point, kernel in zip(self.points, kernels, strict=True)])

    def slower(self, kernels: Sequence[SparseKernel]) -> Array:
        """Share of time lost against the shipped rule, per point; negative where it is gained."""
        pairs = zip(self.points, kernels, self.kernels(self.shipped), strict=True)
        return np.asarray([point.us[new] / point.us[old] - 1.0 for point, new, old in pairs])

    def mean(self, values: Array) -> float:
        """Weighted."""
        return float(np.average(values, weights=self.weights))

    @property
    def effective_points(self) -> float:
        """As many points of equal weight would count as much."""
        return float(np.sum(self.weights) ** 2 / np.sum(self.weights**2))

    def slower_shapes(self, rule: Rule) -> int:
        """Points that are slower than under the shipped rule by more than the noise of their times."""
        noise = np.asarray([point.noise for point in self.points])
        return int(np.sum(self.slower(self.kernels(rule)) > noise))

    def part(self, kept: Sequence[int]) -> Case:
        """Some of the points."""
        return replace(self, points=tuple(self.points[index] for index in kept), weights=self.weights[list(kept)])

    def fit(self, family: Family) -> Rule:
        """The rule of a form with the least regret, harm to single shapes counted ten times."""
        sparse, kv = (self._costs([kernel] * len(self.points)) for kernel in KERNELS)
        return family.fit([point.step for point in self.points], sparse - kv)

    def _costs(self, kernels: Sequence[SparseKernel]) -> Array:
        """What each point adds to the loss of a rule that takes these kernels."""
        harm = np.maximum(self.slower(kernels) - _HARM, 0.0)
        share = self.weights / self.weights.sum()
        return np.asarray(share * self.lost(kernels) + 10.0 * harm / len(self.points))

    def cross_validate(self, family: Family) -> list[SparseKernel]:
        """The kernel that a rule fitted without a point's fold takes for the point. Equal batches share a fold, and folds follow from
        the batches alone, so that no seed chooses among forms.
        """
        # "0:" makes the folds of the committed tables, which once had a seed.
        folds = [int(digest(f"0:{point.step}")[:8], 16) % _FOLDS for point in self.points]
        kernels: list[SparseKernel] = [KERNELS[1]] * len(folds)
        for fold in sorted(set(folds)):
            kept = [index for index, own in enumerate(folds) if own != fold] or list(range(len(folds)))
            predicted = self.kernels(self.part(kept).fit(family))
            kernels = [new if own == fold else old for new, old, own in zip(predicted, kernels, folds, strict=True)]
        return kernels


def tune(points: Sequence[Observed], mix: Mapping[Step, float], shipped: Rule) -> Tuned:
    """Fit, cross-validate and choose; points that are held out are only looked at afterwards."""
    seen = tuple(point for point in points if not point.held_out) or tuple(points)
    unseen = [point for point in points if point not in seen]
    case = Case(seen, weigh(seen, mix), shipped)
    predicted = {family.name: case.cross_validate(family) for family in FAMILIES}
    lost = {name: case.lost(kernels) for name, kernels in predicted.items()}
    fits = tuple(_fit(case, family, lost[family.name], unseen) for family in FAMILIES)
    noise = case.mean(np.asarray([point.noise for point in seen]))
    chosen = _choose(case, fits, lost, noise)
    static = min(KERNELS, key=lambda kernel: case.mean(case.lost([kernel] * len(seen))))
    return Tuned(
        chosen=chosen,
        fits=fits,
        regret_shipped=case.mean(case.lost(case.kernels(shipped))),
        regret_static=case.mean(case.lost([static] * len(seen))),
        static=static,
        gains=gains_of(case, chosen.rule, predicted[chosen.family.name]),
        noise=noise,
        shapes=len(seen),
    )


def weigh(points: Sequence[Observed], mix: Mapping[Step, float]) -> Array:
    """Weight of each point, in all 1: every step of the mix counts for the nearest point (in log tokens)."""
    weights = np.full(len(points), (_SPREAD if mix else 1.0) / len(points))
    total = sum(mix.values())
    for step, share in mix.items():
        distances = [math.hypot(*(math.log(a / b) for a, b in zip(step, p.step, strict=True))) for p in points]
        weights[distances.index(min(distances))] += (1.0 - _SPREAD) * share / total
    return weights


def _choose(case: Case, fits: Sequence[Fit], lost: Mapping[str, Array], noise: float) -> Fit:
    """The form with the fewest parameters whose regret is the best one's but for noise; of those that harm no shape by
    more than a percent and the noise of its times, where there are any.
    """
    harmless = [fit for fit in fits if fit.worst <= _HARM + 2 * noise] or list(fits)
    best = min(harmless, key=lambda fit: (fit.regret, fit.family.parameters))
    least = case.lost(case.kernels(best.rule))
    for fit in sorted(harmless, key=lambda fit: (fit.family.parameters, fit.regret)):
        more = case.lost(case.kernels(fit.rule)) - least
        if more.max() <= _MATTERS_ONCE and _is_within(case, lost[fit.family.name] - lost[best.family.name], noise):
            return fit
    return best


def _is_within(case: Case, difference: Array, noise: float) -> bool:
    """Whether a mean difference of regrets is less than one standard error of it, or than the noise of the times.

    The one-standard-error rule (Breiman et al. 1984), with as many shapes as the weights are worth. Few shapes with large
    weights leave a large error: a difference that would matter is never within it.
    """
    mean = case.mean(difference)
    worth = case.effective_points
    error = math.sqrt(case.mean((difference - mean) ** 2) / max(worth - 1.0, 1.0))
    return mean <= min(max(error, noise / math.sqrt(worth)), _MATTERS)


def _fit(case: Case, family: Family, lost: Array, unseen: Sequence[Observed]) -> Fit:
    rule = case.fit(family)
    held = replace(case, points=tuple(unseen))
    return Fit(
        family=family,
        rule=rule,
        regret=case.mean(lost),
        held_out=float(held.lost(held.kernels(rule)).mean()) if unseen else None,
        worst=max(0.0, float(case.slower(case.kernels(rule)).max())),
    )


def gains_of(case: Case, rule: Rule, predicted: Sequence[SparseKernel]) -> ShapeGains:
    """Of a rule, weighted by the kernels that it takes at each point, or that cross-validation predicted."""
    slower = case.slower(case.kernels(rule))
    return ShapeGains(
        weighted=round(math.expm1(-case.mean(np.log1p(case.slower(predicted)))), 5),
        least=round(1.0 / (1.0 + float(slower.max())) - 1.0, 5),
        median=round(1.0 / (1.0 + float(np.median(slower))) - 1.0, 5),
        effective_shapes=round(case.effective_points, 1),
        slower_shapes=case.slower_shapes(rule),
    )
