"""The mean of a metric over boots, with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dsabench.stats.bootstrap import Interval, Values, bootstrap
from dsabench.stats.tails import t_critical

BOOTSTRAP_FROM = 12
"""Boots from which the interval is a bootstrap (BCa). A bootstrap draws only what it has seen: with a spread of 5 %
between boots its 95 % interval held the true mean in 73 of 100 studies of three boots, 81 of five and 92 of twelve;
Student's held it in 94 to 96 at every size (400 simulated studies each, log-normal boots)."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """One metric over several boots; `interval` is the 95 % one of the mean, None from a single boot."""

    boots: int
    mean: float
    interval: Interval | None


def over_boots(values: Mapping[str, Sequence[float]], *, seed: int = 0) -> Repeats | None:
    """Boot → its values; each boot counts as its mean. None where there is no boot.

    The interval of values that are all at least 0 ends there: every metric is a time, a count, a rate or a share, and a
    true mean below 0 was excluded before anything was measured, so that the cut costs no coverage.
    """
    means = np.array([math.fsum(of_boot) / len(of_boot) for of_boot in values.values() if of_boot], np.float64)
    if not means.size:
        return None
    return Repeats(int(means.size), float(means.mean()), _interval(means, seed))


def _interval(means: Values, seed: int) -> Interval | None:
    n = int(means.size)
    if n < 2:
        return None
    if n >= BOOTSTRAP_FROM:
        return bootstrap(means.tolist(), np.mean, seed=seed, takes_axis=True)
    half = t_critical(0.025, n - 1) * float(means.std(ddof=1)) / math.sqrt(n)
    low = float(means.mean()) - half
    return Interval(max(low, 0.0) if means.min() >= 0 else low, float(means.mean()) + half)
