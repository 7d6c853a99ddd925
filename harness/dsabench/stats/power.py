"""Detectable differences, and the number of boots that a difference needs. All on the log scale."""

from __future__ import annotations

import math
from functools import lru_cache

from scipy import special

from dsabench.model.verdict import BOOTS_MIN
from dsabench.stats.distributions import chi_squared_quantile, t_critical

POWER = 0.80
BOOTS_MAX = 1000
"""Above this the number of boots has no practical meaning."""


def detectable(standard_error: float, df: float, alpha: float, power: float = POWER) -> float:
    """Smallest true difference that a two-sided t test detects with this power."""
    return noncentrality(round(max(df, 1.0), 1), alpha, power) * standard_error


@lru_cache(maxsize=4096)
def noncentrality(df: float, alpha: float, power: float = POWER) -> float:
    """Difference, in standard errors, at which |t| exceeds its critical value with this probability.

    From the noncentral t distribution (Cohen 1988, ch. 2). The sum of two t quantiles is off by a factor at few
    degrees of freedom, which benchmarks have.
    """
    critical = t_critical(alpha / 2, df)
    # The far tail (large |t| with the wrong sign) is below 1e-4 here.
    return float(special.nctdtrinc(df, 1.0 - power, critical))


def boots_needed(
    spread: float, difference: float, *, paired: bool, alpha: float, power: float = POWER, pilot: int = 0
) -> int | None:
    """Boots per side at which `difference` is detectable; None above `BOOTS_MAX`.

    `spread` is the standard deviation of one pair's difference if paired, else of one boot. The first `pilot` boots
    per side do not count for the spread, see `ComparisonSpec.pilot`.
    """
    if difference <= 0.0:
        return None

    def enough(boots: int) -> bool:
        standard_error = spread * math.sqrt((1.0 if paired else 2.0) / boots)
        df = (boots - pilot - 1) * (1 if paired else 2)
        return boots - pilot >= BOOTS_MIN and detectable(standard_error, df, alpha, power) <= difference

    if not enough(BOOTS_MAX):
        return None
    low, high = 1, BOOTS_MAX  # `high` is enough, `low` (one boot) never is
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def careful_spread(spread: float, df: float) -> float:
    """Upper 80 % limit of a spread from few boots. With the plain spread half of all plans have too few boots.

    Browne 1995, "On the use of a pilot sample for sample size determination", Statistics in Medicine 14.
    """
    return spread * math.sqrt(df / chi_squared_quantile(0.2, df))
