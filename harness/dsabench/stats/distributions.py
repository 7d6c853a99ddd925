"""Quantiles and tails of distributions, from scipy.special: what scipy.stats calls as well, without the 0.3 s that it takes to import."""

from __future__ import annotations

from scipy import special


def t_above(x: float, df: float) -> float:
    """Chance that Student's t exceeds x."""
    return float(special.stdtr(df, -x))


def t_critical(alpha: float, df: float) -> float:
    """What Student's t exceeds with chance alpha."""
    return float(-special.stdtrit(df, alpha))


def normal_critical(alpha: float) -> float:
    """What a standard normal variable exceeds with chance alpha."""
    return float(-special.ndtri(alpha))


def chi_squared_quantile(p: float, df: float) -> float:
    """What chi squared stays below with chance p."""
    return float(2 * special.gammaincinv(df / 2, p))


def fair_coin_p(heads: int, tails: int) -> float:
    """Exact two-sided p value of so many heads and tails; 1 without a toss."""
    return min(1.0, float(2 * special.bdtr(min(heads, tails), heads + tails, 0.5)))
