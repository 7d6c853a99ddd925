"""Confidence intervals: of a mean over boots, of a share, and of any statistic (bootstrap)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dsabench.model.verdict import BOOTS_MIN
from dsabench.stats.distributions import t_critical

Values = npt.NDArray[np.float64]
Statistic = Callable[..., float]
"""A function from a one-dimensional array to a number."""


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def bootstrap(
    values: Sequence[float],
    statistic: Statistic,
    *,
    seed: int,
    method: Literal["percentile", "BCa"] = "BCa",
    confidence: float = 0.95,
    resamples: int = 2000,
    takes_axis: bool = False,
) -> Interval | None:
    """Bootstrap interval of a statistic of independent observations; None for fewer than two.

    `takes_axis` says that the statistic accepts numpy's `axis`, as `np.mean` does; this is fifty times as fast.

    BCa corrects bias and skew (Efron 1987). If it is undefined (all resamples on one side of the estimate, as for
    constant values), the percentile interval is returned.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size < 2:
        return None
    return _resample(
        data, statistic, seed=seed, method=method, confidence=confidence, resamples=resamples, takes_axis=takes_axis
    )


def _resample(
    data: npt.NDArray[Any],
    statistic: Callable[[npt.NDArray[Any]], float],
    *,
    seed: int,
    method: Literal["percentile", "BCa"],
    confidence: float,
    resamples: int,
    takes_axis: bool = False,
) -> Interval:
    from scipy import stats  # noqa: PLC0415  (half a second that only a drawn interval pays)

    def draw(method: Literal["percentile", "BCa"]) -> Interval:
        result = stats.bootstrap(
            (data,),
            statistic,
            vectorized=takes_axis,
            method=method,
            confidence_level=confidence,
            n_resamples=resamples,
            rng=np.random.default_rng(seed),
        )
        return Interval(float(result.confidence_interval.low), float(result.confidence_interval.high))

    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        interval = draw(method)
    return draw("percentile") if np.isnan(interval).any() else interval


def wilson(hits: float, n: int, confidence: float = 0.95) -> Interval | None:
    """Wilson's score interval (1927) of hits/n; None for n = 0.

    It stays inside [0, 1] and has a width for 0 and n hits, unlike the textbook interval.
    """
    if n == 0:
        return None
    z = NormalDist().inv_cdf((1.0 + confidence) / 2)
    share = hits / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


BOOTSTRAP_FROM = 12
"""Number of boots from which the bootstrap (BCa) is used. With a spread of 5 % between boots its 95 % interval held
the true mean in 73 of 100 studies of three boots, 81 of five and 92 of twelve. Student's interval held it in 94 to
96 at every size (400 simulated studies each, log-normal boots).
"""


@dataclass(frozen=True, slots=True)
class BootMean:
    """A metric over several boots. `interval` is the 95 % one of the mean; None for fewer than three boots."""

    boots: int
    mean: float
    interval: Interval | None


def mean_over_boots(values: Mapping[str, Sequence[float]], *, seed: int = 0) -> BootMean | None:
    """Average over boots; `values` maps each boot to its values. None without boots.

    If all values are at least 0, the interval is cut at 0. Every metric is a time, a count, a rate or a share, so a
    true mean below 0 is impossible and the cut costs no coverage.
    """
    means = np.array([math.fsum(of_boot) / len(of_boot) for of_boot in values.values() if of_boot], np.float64)
    if not means.size:
        return None
    return BootMean(int(means.size), float(means.mean()), _interval(means, seed))


def _interval(means: Values, seed: int) -> Interval | None:
    n = int(means.size)
    if n < BOOTS_MIN:
        return None
    if n >= BOOTSTRAP_FROM:
        return bootstrap(means.tolist(), np.mean, seed=seed, takes_axis=True)
    half = t_critical(0.025, n - 1) * float(means.std(ddof=1)) / math.sqrt(n)
    low = float(means.mean()) - half
    return Interval(max(low, 0.0) if means.min() >= 0 else low, float(means.mean()) + half)
