from __future__ import annotations

import math

import pytest
from scipy import integrate, stats

from dsabench.stats.power import boots_needed, detectable, noncentrality


@pytest.mark.parametrize("df", [1.0, 2.0, 3.7, 30.0, 500.0])
@pytest.mark.parametrize("alpha", [0.05, 0.005])
def test_noncentrality_gives_eighty_percent_power(df: float, alpha: float) -> None:
    shift, critical = noncentrality(df, alpha), stats.t.isf(alpha / 2, df)

    def density(root: float) -> float:  # of √χ², times the chance to exceed the critical value given it
        above = stats.norm.cdf(shift - critical * root / math.sqrt(df))
        return float(2.0 * root * stats.chi2.pdf(root**2, df) * above)

    power, _ = integrate.quad(density, 0.0, math.sqrt(stats.chi2.isf(1e-13, df)), limit=500)
    assert power == pytest.approx(0.8, abs=1e-4)


def test_many_boots_approach_the_normal_formula() -> None:
    assert detectable(0.01, 1e6, 0.05) == pytest.approx(0.01 * (1.95996 + 0.84162), rel=1e-3)


def test_boots_needed_is_the_fewest() -> None:
    # Cohen's tables: an effect of one standard deviation takes 17 a side, or 10 pairs.
    assert boots_needed(1.0, 1.0, paired=False, alpha=0.05) == 17
    assert boots_needed(1.0, 1.0, paired=True, alpha=0.05) == 10
    assert boots_needed(1.0, 50.0, paired=False, alpha=0.05) == 3


def test_what_no_reasonable_number_shows_has_none() -> None:
    assert boots_needed(1.0, 0.001, paired=False, alpha=0.05) is None
    assert boots_needed(1.0, 0.0, paired=True, alpha=0.05) is None
