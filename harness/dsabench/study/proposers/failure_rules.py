"""Which values of axes make a setting fail, alone or two together, as far as failures and runs tell.

Each rule either holds or not. A setting fails if a rule covers it that holds, else rarely (a noisy-or). A setting that ran refutes every
rule that covers it; a failure is explained by the rules that are left, the more probably the more failures they explain. The
probabilities are those of the mean-field approximation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dsabench.study.proposers.gaussian_process import Floats, SettingKernel

FAMILY = 3
"""Failures that a rule has to explain before the settings that it covers are avoided."""
_SURE = 0.9
"""Probability that it has to have."""
_ALONE, _TOGETHER = 0.02, 0.01
"""Prior probability that a value makes settings fail, and that two do together."""
_BY_CHANCE = 0.02
"""Probability that a setting fails where no rule holds."""
_STEPS = 40


class FailureRule(NamedTuple):
    """One rule."""

    conditions: tuple[Floats, ...]
    """One or two: 1 at each level at which it holds."""

    def covers(self, levels: Floats) -> npt.NDArray[np.bool_]:
        """Whether all its conditions hold, per setting."""
        found: npt.NDArray[np.bool_] = np.all([levels @ one > 0 for one in self.conditions], axis=0)
        return found


@dataclass(frozen=True)
class FailureRules:
    """Rules of one condition or two of different axes. A condition is a value of an axis, or all up to one, or all from one on."""

    kernel: SettingKernel
    ran: Floats
    """Levels of the settings that ran."""
    failed: Floats
    """Levels of the settings that failed."""

    def survival(self, levels: Floats) -> Floats:
        """Probability that a setting runs: that no rule covers it that holds, and that it does not fail by chance."""
        holding = self._holding(levels)
        found: Floats = (1.0 - _BY_CHANCE) * np.exp(_covered(holding, np.log1p(-self.probabilities)))
        return found

    def is_hopeless(self, levels: Floats) -> npt.NDArray[np.bool_]:
        """Whether a rule covers a setting that all but certainly holds and explains `FAMILY` failures or more."""
        found: npt.NDArray[np.bool_] = _covered(self._holding(levels), self._sure.astype(float)) > 0
        return found

    def families(self) -> Iterator[FailureRule]:
        """Those rules."""
        for pair in zip(*np.nonzero(self._sure), strict=True):
            yield FailureRule(tuple(self._conditions[place] for place in dict.fromkeys(pair)))

    @cached_property
    def _sure(self) -> npt.NDArray[np.bool_]:
        explained = self._holding(self.failed).T @ self._holding(self.failed)
        found: npt.NDArray[np.bool_] = (self.probabilities >= _SURE) & (explained >= FAMILY)
        return found

    @cached_property
    def probabilities(self) -> Floats:
        """(conditions, conditions): how likely the rule of two conditions holds; of one condition on the diagonal."""
        holding, failing = self._holding(self.ran), self._holding(self.failed)
        alone, axis = np.eye(len(self._axis), dtype=bool), self._axis
        first, second = np.nonzero((alone | np.less.outer(axis, axis)) & (holding.T @ holding == 0))
        prior = np.where(first == second, _ALONE, _TOGETHER)
        explains = failing[:, first] * failing[:, second]
        some, log_odds = prior, np.log(prior / (1.0 - prior))
        for _ in range(_STEPS if len(failing) else 0):
            log_not = np.log1p(-some)
            without = np.exp((explains @ log_not)[:, None] - log_not)
            gain = -np.log(np.clip(1.0 - (1.0 - _BY_CHANCE) * without, _BY_CHANCE, 1.0))
            told = expit(log_odds + (explains * gain).sum(axis=0))
            some = np.clip(0.5 * (some + told), 1e-9, 1.0 - 1e-6)
        found: Floats = np.zeros(alone.shape)
        found[first, second] = some
        return found

    def _holding(self, levels: Floats) -> Floats:
        """(settings, conditions): 1 where a condition holds."""
        return levels @ self._conditions.T

    @cached_property
    def _conditions(self) -> Floats:
        """(conditions, levels): 1 at each level of a condition."""
        axes = zip(self.kernel.distances, self.kernel.ordered, strict=True)
        groups = [_groups(distances, is_ordered=ordered) for distances, ordered in axes]
        found: Floats = np.zeros((sum(map(len, groups)), len(self.kernel.axis)))
        starts = np.searchsorted(self.kernel.axis, range(len(groups)))
        places = ((start, group) for start, of_axis in zip(starts, groups, strict=True) for group in of_axis)
        for row, (start, group) in enumerate(places):
            found[row, start + np.array(group)] = 1.0
        return found

    @cached_property
    def _axis(self) -> npt.NDArray[np.intp]:
        """The place of each condition's axis."""
        found: npt.NDArray[np.intp] = self.kernel.axis[np.argmax(self._conditions, axis=1)]
        return found


def _covered(holding: Floats, rules: Floats) -> Floats:
    """Per setting, the sum over the rules that cover it."""
    found: Floats = np.einsum("ij,ij->i", holding @ rules, holding)
    return found


def _groups(distances: Floats, *, is_ordered: bool) -> list[list[int]]:
    """The levels of each condition on one axis."""
    values = len(distances) - 1
    found = [[place] for place in range(values + 1)]
    if is_ordered:
        between = distances[:-1, :-1]
        # From one end to the other: by the distance from the value that another one is farthest from.
        along = [int(place) for place in np.argsort(between[np.argmax(between.max(axis=1))])]
        found += [along[:split] for split in range(2, values)] + [along[split:] for split in range(1, values - 1)]
    return found
