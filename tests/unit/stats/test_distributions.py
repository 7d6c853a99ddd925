from __future__ import annotations

import pytest
from scipy import stats

from dsabench.stats.distributions import chi_squared_quantile, fair_coin_p, normal_critical, t_above, t_critical

CHANCES = (1e-9, 0.005, 0.025, 0.2, 0.5, 0.9, 1 - 1e-9)


@pytest.mark.parametrize("df", [1, 2, 3.7, 30.0, 500.0, 1e6])
def test_they_are_those_of_scipy_stats(df: float) -> None:
    for chance in CHANCES:
        assert t_critical(chance, df) == stats.t.isf(chance, df)
        assert chi_squared_quantile(chance, df) == stats.chi2.ppf(chance, df)
        assert normal_critical(chance) == stats.norm.isf(chance)
    for x in (-7.0, -0.1, 0.0, 0.3, 2.0, 60.0):
        assert t_above(x, df) == stats.t.sf(x, df)


@pytest.mark.parametrize(("heads", "tails"), [(0, 1), (1, 1), (3, 9), (9, 3), (0, 40), (50, 51), (2000, 1800)])
def test_a_fair_coin_is_that_of_the_exact_binomial_test(heads: int, tails: int) -> None:
    assert fair_coin_p(heads, tails) == pytest.approx(stats.binomtest(heads, heads + tails).pvalue, rel=1e-9)


def test_without_a_toss_nothing_is_shown() -> None:
    assert fair_coin_p(0, 0) == 1.0
