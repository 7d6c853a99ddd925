"""Quantiles and tails from scipy.special. scipy.stats calls the same functions, but takes 0.3 s to import."""

from __future__ import annotations

from scipy import special


def t_above(x: float, df: float) -> float:
    """P(T > x) of Student's t."""
    return float(special.stdtr(df, -x))


def t_critical(alpha: float, df: float) -> float:
    """The x with P(T > x) = alpha of Student's t."""
    return float(-special.stdtrit(df, alpha))


def normal_below(x: float) -> float:
    """P(Z < x) of the standard normal distribution."""
    return float(special.ndtr(x))


def normal_critical(alpha: float) -> float:
    """The x with P(Z > x) = alpha of the standard normal distribution."""
    return float(-special.ndtri(alpha))


def chi_squared_quantile(p: float, df: float) -> float:
    """The p-quantile of the chi-squared distribution."""
    return float(2 * special.gammaincinv(df / 2, p))


def fair_coin_p(heads: int, tails: int) -> float:
    """Exact two-sided p value of a fair coin with this number of heads and tails; 1 without a toss."""
    return min(1.0, float(2 * special.bdtr(min(heads, tails), heads + tails, 0.5)))
