"""Gaussian-process regression over the settings of a space.

The covariance of two settings is a sum over axes, plus a sum over pairs of axes, plus a product of all (additive kernels: Duvenaud,
Nickisch, Rasmussen, 2011). Most of what a server gains comes from one axis or two together, which few measurements can tell;
the product leaves room for the rest. Axes of numbers are compared by rank, others by equality.

A setting is encoded by its level of each axis, a 1 among zeros, so that what two settings have in common is read from one table of all
levels by products of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag, cho_solve, solve_triangular
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
_UNLIKE = 50.0
"""Minus the logarithm of what two unequal values of an axis without order have in common."""
_STEPS = 40
_JITTER = 1e-6
FITTED = 200
"""The scales are fitted to so many values at most, spread evenly over the measured ones; the regression uses all."""


class Scales(NamedTuple):
    """The scales of a kernel, in variances of the values."""

    alone: Floats
    """Variance of each axis."""
    rate: float
    """1 / length of ordered axes."""
    pairs: float
    all: float
    noise: float

    @classmethod
    def of(cls, logarithms: Floats) -> Scales:
        """From the logarithms of all, in this order."""
        alone, (rate, pairs, all_, noise) = np.exp(logarithms[:-4]), np.exp(logarithms[-4:])
        return cls(alone, float(rate), float(pairs), float(all_), float(noise))

    @property
    def variance(self) -> float:
        """Prior variance of a setting, without noise."""
        alone = float(self.alone.sum())
        return _CONSTANT + alone + self.pairs * 0.5 * (alone**2 - float((self.alone**2).sum())) + self.all


class _Covariance(NamedTuple):
    """The covariance of two sets of settings, and the parts of it."""

    whole: Floats
    total: Floats
    of_pairs: Floats
    product: Floats


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

    def levels(self, codes: Codes) -> Floats:
        """(settings, levels): 1 where a setting has this level of an axis."""
        found: Floats = np.zeros((len(codes), len(self.axis)))
        rows, start = np.arange(len(codes)), 0
        for column, distances in zip(self.columns, self.distances, strict=True):
            found[rows, start + codes[:, column] % len(distances)] = 1.0  # an inactive one, -1, is the last
            start += len(distances)
        return found

    def covariance(self, first: Floats, second: Floats, scales: Scales) -> _Covariance:
        """Of two sets of settings, given their levels."""
        rates = self.rates(scales.rate)
        weighted = self.weighted(scales)
        total = first @ weighted @ second.T
        of_pairs = 0.5 * (total * total - first @ (weighted * weighted) @ second.T)
        product = np.exp(first @ rates @ second.T)
        return _Covariance(_CONSTANT + total + scales.pairs * of_pairs + scales.all * product, total, of_pairs, product)

    def rates(self, rate: float) -> Floats:
        """(levels, levels): logarithm of what two levels of an axis have in common; 0 between axes."""
        return -np.where(self.is_ordered, rate, _UNLIKE) * self._distances

    def weighted(self, scales: Scales) -> Floats:
        """(levels, levels): the covariance of two levels of an axis alone; 0 between axes."""
        found: Floats = np.where(self._is_one_axis, scales.alone[self.axis] * np.exp(self.rates(scales.rate)), 0.0)
        return found

    @cached_property
    def axis(self) -> npt.NDArray[np.intp]:
        """The place of each level's axis in `columns`."""
        return np.repeat(np.arange(len(self.distances)), [len(one) for one in self.distances])

    @cached_property
    def _is_one_axis(self) -> npt.NDArray[np.bool_]:
        return np.equal.outer(self.axis, self.axis)

    @cached_property
    def is_ordered(self) -> npt.NDArray[np.bool_]:
        """Whether a level's axis is ordered."""
        return np.array(self.ordered, dtype=bool)[self.axis]

    @cached_property
    def _distances(self) -> Floats:
        found: Floats = block_diag(*self.distances)
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


@dataclass(frozen=True)
class FittedProcess:
    """A process that was fitted to values of some settings."""

    kernel: SettingKernel
    levels: Floats
    """Of the measured settings."""
    scales: Scales
    mean: float
    deviation: float
    root: npt.NDArray[Any]
    """Lower Cholesky factor of the covariance of the measured settings, noise included."""
    weights: Floats
    misfit: float
    """Negative logarithm of the posterior of the scales: a smaller one explains the values better."""

    def predict(self, levels: Floats) -> tuple[Floats, Floats]:
        """Posterior mean and standard deviation of the values without noise, per setting."""
        covariance = self.kernel.covariance(self.levels, levels, self.scales).whole
        reduced = solve_triangular(self.root, covariance, lower=True, check_finite=False)
        variance = np.maximum(self.scales.variance - np.einsum("ij,ij->j", reduced, reduced), 1e-10)
        return self.mean + self.deviation * (self.weights @ covariance), self.deviation * np.sqrt(variance)


def fit_process(kernel: SettingKernel, levels: Floats, values: Floats, *, noise: float) -> FittedProcess:
    """Fit the scales by their posterior mode, then the process to all values.

    Args:
        kernel: of the space.
        levels: (n, levels) of the measured settings.
        values: (n) values.
        noise: expected standard deviation of a value.

    """
    mean, deviation = float(values.mean()), float(values.std()) or 1.0
    told = (values - mean) / deviation
    axes = len(kernel.columns)
    center = np.log([*[_ALONE / axes] * axes, 1 / _LENGTH, _PAIRS, _ALL, (noise / deviation) ** 2])
    spread = np.array([*[_DEVIATIONS["alone"]] * axes, *list(_DEVIATIONS.values())[1:]])
    some = np.unique(np.linspace(0, len(told) - 1, min(len(told), FITTED)).astype(int))
    found = minimize(
        _Misfit(kernel, levels[some], told[some], center, spread),
        center,
        jac=True,
        method="L-BFGS-B",
        # A line search may try scales far beyond any that the prior allows, and overflow.
        bounds=list(zip(center - _REACH * spread, center + _REACH * spread, strict=True)),
        options={"maxiter": _STEPS},
    )
    scales = Scales.of(found.x)
    covariance = kernel.covariance(levels, levels, scales).whole
    root = np.linalg.cholesky(covariance + (scales.noise + _JITTER) * np.eye(len(told)))
    misfit = float(found.fun) + len(some) * math.log(deviation)
    return FittedProcess(kernel, levels, scales, mean, deviation, root, cho_solve((root, True), told), misfit)


class _Misfit:
    """Negative logarithm of the posterior of the scales, with its gradient."""

    def __init__(self, kernel: SettingKernel, levels: Floats, told: Floats, center: Floats, spread: Floats) -> None:
        self._kernel, self._levels, self._told, self._center, self._spread = kernel, levels, told, center, spread

    def __call__(self, logarithms: Floats) -> tuple[float, Floats]:
        scales, told = Scales.of(logarithms), self._told
        covariance = self._kernel.covariance(self._levels, self._levels, scales)
        try:
            root = np.linalg.cholesky(covariance.whole + (scales.noise + _JITTER) * np.eye(len(told)))
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(logarithms)
        inverse = cho_solve((root, True), np.eye(len(told)))
        weights = inverse @ told
        away = (logarithms - self._center) / self._spread
        misfit = 0.5 * told @ weights + np.log(np.diag(root)).sum() + 0.5 * away @ away
        gradient = self._gradient(covariance, scales, inverse - np.outer(weights, weights))
        return float(misfit), gradient + away / self._spread

    def _gradient(self, covariance: _Covariance, scales: Scales, outer: Floats) -> Floats:
        """Half of the trace of `outer` times the derivative of the covariance by each logarithm."""
        kernel, levels = self._kernel, self._levels
        weighted, rates = kernel.weighted(scales), kernel.rates(scales.rate)
        # What each pair of levels adds, summed over the settings that have them.
        alone = levels.T @ (outer * (1.0 + scales.pairs * covariance.total)) @ levels * weighted
        alone -= scales.pairs * (levels.T @ outer @ levels) * weighted**2
        product = scales.all * (levels.T @ (outer * covariance.product) @ levels)
        of_axes = np.bincount(kernel.axis, alone.sum(axis=0))
        of_rate = (rates * (alone + product))[:, kernel.is_ordered].sum()
        of_pairs = scales.pairs * (outer * covariance.of_pairs).sum()
        of_all = scales.all * (outer * covariance.product).sum()
        found: Floats = 0.5 * np.array([*of_axes, of_rate, of_pairs, of_all, scales.noise * np.trace(outer)])
        return found
