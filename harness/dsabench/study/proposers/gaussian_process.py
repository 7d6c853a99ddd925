"""Gaussian-process regression over the settings of a space.

The covariance of two settings is a sum over axes, plus a sum over pairs of axes, plus a product of all (additive kernels: Duvenaud,
Nickisch, Rasmussen, 2011). Most of what a server gains comes from one axis or two together, which few measurements can tell;
the product leaves room for the rest. Axes of numbers are compared by rank, others by equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

from dsabench.model.study import SearchSpace
from dsabench.study.proposers.legal_settings import Codes, is_ordered

Floats = npt.NDArray[np.float64]

_CONSTANT = 1.0
"""Prior variance of the mean, in variances of the values: few values tell little of it."""
_ALONE, _PAIRS, _ALL, _LENGTH = 0.7, 1.0, 0.1, 1.0
"""Prior medians: variance of all axes alone, and factors of their pairs and of the product; length in ranges of an axis."""
_DEVIATIONS = {"alone": 1.2, "length": 0.5, "pairs": 1.0, "all": 1.0, "noise": 0.7}
"""Standard deviations of the priors, of the logarithm."""
_REACH = 5.0
"""How far from the prior's median a scale may be, in its standard deviations."""
_STEPS = 40
_JITTER = 1e-6
FITTED = 200
"""The scales are fitted to so many values at most, spread evenly over the measured ones; the regression uses all."""


@dataclass(frozen=True)
class SettingKernel:
    """How alike two settings are, axis by axis."""

    columns: tuple[int, ...]
    """Columns of the codes that count. An axis that follows from another one does not: it would count twice."""
    distances: tuple[Floats, ...]
    """Per column, between two values: 0 to 1 by rank, or 0 and 1. The last row and column are for an inactive axis."""
    ordered: tuple[bool, ...]

    @classmethod
    def of_space(cls, space: SearchSpace, codes: Codes) -> SettingKernel:
        """The kernel of a space whose settings have these codes."""
        columns = _independent_columns(space, codes)
        axes = [space.axes[column] for column in columns]
        distances = tuple(_distances(axis.values if is_ordered(axis) else len(axis.values)) for axis in axes)
        return cls(columns, distances, tuple(map(is_ordered, axes)))

    def similarities(self, first: Codes, second: Codes, rate: float) -> list[Floats]:
        """The covariance of each axis alone, (first, second)."""
        tables = zip(self.columns, self.distances, self.ordered, strict=True)
        return [
            _between(np.exp(-rate * distances) if ordered else (distances == 0.0).astype(float), first, second, column)
            for column, distances, ordered in tables
        ]

    def slopes(self, codes: Codes, rate: float) -> list[Floats | None]:
        """The derivatives of the covariances of one set of settings by the logarithm of the rate; None where there is none."""
        tables = zip(self.columns, self.distances, self.ordered, strict=True)
        return [
            _between(-rate * distances * np.exp(-rate * distances), codes, codes, column) if ordered else None
            for column, distances, ordered in tables
        ]


def _between(table: Floats, first: Codes, second: Codes, column: int) -> Floats:
    """What a table says of each pair of settings, by their values of one axis."""
    found: Floats = table[first[:, column][:, None], second[:, column][None, :]]
    return found


def _independent_columns(space: SearchSpace, codes: Codes) -> tuple[int, ...]:
    """The axes without those that follow from an earlier one. An axis on which others depend always stays."""
    parents = {name for conditions in space.when.values() for name in conditions}
    kept: list[int] = []
    for column, axis in enumerate(space.axes):
        follows = any(_follows(codes[:, column], codes[:, other]) for other in kept)
        if len(codes) and len(np.unique(codes[:, column])) > 1 and (axis.name in parents or not follows):
            kept.append(column)
    return tuple(kept)


def _follows(column: Codes, other: Codes) -> bool:
    """Whether each value of the other column has one value of this one."""
    return len(np.unique(other)) == len(np.unique(np.stack([other, column]), axis=1).T)


def _distances(values: Sequence[object] | int) -> Floats:
    """Between the values of an axis, and to an inactive one, which is as far as the farthest."""
    if isinstance(values, int):
        return 1.0 - np.eye(values + 1)
    ranks = np.argsort(np.argsort(np.array(values, dtype=float)))
    found: Floats = np.ones((len(values) + 1, len(values) + 1))
    found[:-1, :-1] = np.abs(ranks[:, None] - ranks[None, :]) / (len(values) - 1)
    found[-1, -1] = 0.0
    return found


class _Scales(NamedTuple):
    """The fitted scales of a kernel, in variances of the values."""

    alone: Floats
    """Variance of each axis."""
    rate: float
    """1 / length of ordered axes."""
    pairs: float
    all: float
    noise: float

    @classmethod
    def of(cls, logarithms: Floats) -> _Scales:
        alone, (rate, pairs, all_, noise) = np.exp(logarithms[:-4]), np.exp(logarithms[-4:])
        return cls(alone, float(rate), float(pairs), float(all_), float(noise))


class _Parts(NamedTuple):
    """The covariance of two sets of settings, and what its derivatives need."""

    whole: Floats
    weighted: list[Floats]
    total: Floats
    of_pairs: Floats
    product: Floats


def _parts(similarities: Sequence[Floats], scales: _Scales) -> _Parts:
    weighted = [alone * one for alone, one in zip(scales.alone, similarities, strict=True)]
    total = sum(weighted[1:], weighted[0])
    of_pairs = 0.5 * (total * total - sum(one * one for one in weighted))
    product = similarities[0].copy()
    for one in similarities[1:]:
        product *= one
    whole = _CONSTANT + total + scales.pairs * of_pairs + scales.all * product
    return _Parts(whole, weighted, total, of_pairs, product)


@dataclass(frozen=True)
class FittedProcess:
    """A process that was fitted to values of some settings."""

    kernel: SettingKernel
    codes: Codes
    scales: _Scales
    mean: float
    deviation: float
    root: npt.NDArray[Any]
    """Lower Cholesky factor of the covariance of the measured settings, noise included."""
    weights: Floats

    def predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Posterior mean and standard deviation of the values without noise, per setting."""
        scales = self.scales
        covariance = _parts(self.kernel.similarities(self.codes, codes, scales.rate), scales).whole
        reduced = solve_triangular(self.root, covariance, lower=True, check_finite=False)
        alone = scales.alone.sum()
        of_pairs = 0.5 * (alone**2 - (scales.alone**2).sum())
        prior = _CONSTANT + alone + scales.pairs * of_pairs + scales.all
        variance = np.maximum(prior - (reduced * reduced).sum(axis=0), 1e-10)
        return self.mean + self.deviation * (self.weights @ covariance), self.deviation * np.sqrt(variance)


def fit_process(kernel: SettingKernel, codes: Codes, values: Floats, *, noise: float) -> FittedProcess:
    """Fit the scales by their posterior mode, then the process to all values.

    Args:
        kernel: of the space.
        codes: (n, axes) of the measured settings.
        values: (n) values.
        noise: expected standard deviation of a value.

    """
    mean, deviation = float(values.mean()), float(values.std()) or 1.0
    told = (values - mean) / deviation
    center = np.log(
        [*[_ALONE / len(kernel.columns)] * len(kernel.columns), 1 / _LENGTH, _PAIRS, _ALL, (noise / deviation) ** 2]
    )
    spread = np.array([*[_DEVIATIONS["alone"]] * len(kernel.columns), *list(_DEVIATIONS.values())[1:]])
    some = np.unique(np.linspace(0, len(told) - 1, min(len(told), FITTED)).astype(int))
    found = minimize(
        _Misfit(kernel, codes[some], told[some], center, spread),
        center,
        jac=True,
        method="L-BFGS-B",
        # A line search may try scales far beyond any that the prior allows, and overflow.
        bounds=list(zip(center - _REACH * spread, center + _REACH * spread, strict=True)),
        options={"maxiter": _STEPS},
    )
    scales = _Scales.of(found.x)
    covariance = _parts(kernel.similarities(codes, codes, scales.rate), scales).whole
    root = np.linalg.cholesky(covariance + (scales.noise + _JITTER) * np.eye(len(told)))
    return FittedProcess(kernel, codes, scales, mean, deviation, root, cho_solve((root, True), told))


class _Misfit:
    """Negative logarithm of the posterior of the scales, with its gradient."""

    def __init__(self, kernel: SettingKernel, codes: Codes, told: Floats, center: Floats, spread: Floats) -> None:
        self._kernel, self._codes, self._told, self._center, self._spread = kernel, codes, told, center, spread

    def __call__(self, logarithms: Floats) -> tuple[float, Floats]:
        scales, told = _Scales.of(logarithms), self._told
        similarities = self._kernel.similarities(self._codes, self._codes, scales.rate)
        parts = _parts(similarities, scales)
        try:
            root = np.linalg.cholesky(parts.whole + (scales.noise + _JITTER) * np.eye(len(told)))
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(logarithms)
        inverse = cho_solve((root, True), np.eye(len(told)))
        weights = inverse @ told
        outer = inverse - np.outer(weights, weights)
        away = (logarithms - self._center) / self._spread
        misfit = 0.5 * told @ weights + np.log(np.diag(root)).sum() + 0.5 * away @ away
        slopes = self._kernel.slopes(self._codes, scales.rate)
        gradient = np.array(self._gradient(similarities, slopes, parts, scales, outer))
        return float(misfit), gradient + away / self._spread

    @staticmethod
    def _gradient(
        similarities: Sequence[Floats], slopes: Sequence[Floats | None], parts: _Parts, scales: _Scales, outer: Floats
    ) -> list[float]:
        """Half of the trace of `outer` times the derivative of the covariance by each logarithm."""
        alone, of_rate = [], 0.0
        axes = zip(similarities, slopes, parts.weighted, scales.alone, strict=True)
        for similarity, slope, one, weight in axes:
            others = 1.0 + scales.pairs * (parts.total - one)
            alone.append(0.5 * float((outer * one * others).sum()))
            if slope is not None:
                # The similarity of ordered values is above 0, so the product of the others is this quotient.
                rest = weight * others + scales.all * parts.product / similarity
                of_rate += 0.5 * float((outer * slope * rest).sum())
        of_pairs = 0.5 * scales.pairs * float((outer * parts.of_pairs).sum())
        of_all = 0.5 * scales.all * float((outer * parts.product).sum())
        return [*alone, of_rate, of_pairs, of_all, 0.5 * scales.noise * float(np.trace(outer))]
