from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dsabench.stats.intervals import BOOTSTRAP_FROM, Values, bootstrap, mean_over_boots, wilson


def mean(values: Values) -> float:
    return float(values.mean())


@pytest.mark.parametrize("method", ["percentile", "BCa"])
def test_near_the_t_interval_for_a_mean(method: str) -> None:
    values = np.random.default_rng(1).normal(10.0, 2.0, size=100)
    interval = bootstrap(values.tolist(), mean, seed=1, method=method)
    assert interval is not None
    exact = stats.t.interval(0.95, 99, loc=values.mean(), scale=stats.sem(values))
    assert interval == pytest.approx(exact, abs=0.1)


def test_the_seed_decides() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert bootstrap(values, mean, seed=1) == bootstrap(values, mean, seed=1)
    assert bootstrap(values, mean, seed=1) != bootstrap(values, mean, seed=2)


def test_constant_values_have_an_interval_of_no_width() -> None:
    assert bootstrap([3.0] * 6, mean, seed=1) == (3.0, 3.0)


def test_too_few_have_none() -> None:
    assert bootstrap([1.0], mean, seed=1) is None


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (10, 10), (3, 7), (459, 500), (1, 1)])
def test_is_scipys_wilson_interval(hits: int, n: int) -> None:
    interval = wilson(hits, n)
    exact = stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert interval == pytest.approx((exact.low, exact.high))


def test_nothing_has_no_share() -> None:
    assert wilson(0, 0) is None


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_holds_the_share_and_stays_a_share(counts: tuple[int, int]) -> None:
    hits, n = counts
    interval = wilson(hits, n)
    assert interval is not None
    assert 0.0 <= interval.low <= hits / n + 1e-12
    assert hits / n - 1e-12 <= interval.high <= 1.0
    assert interval.low < interval.high


def test_a_boot_counts_once_however_often_it_measured() -> None:
    found = mean_over_boots({"a": [1.0, 3.0], "b": [4.0]})
    assert found is not None
    assert (found.boots, found.mean) == (2, 3.0)


def test_few_boots_have_students_interval() -> None:
    values = [10.0, 11.0, 12.5]
    found = mean_over_boots({str(i): [value] for i, value in enumerate(values)})
    assert found is not None
    assert found.interval == pytest.approx(stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values)))


def test_many_boots_have_the_bootstraps() -> None:
    values = np.random.default_rng(1).normal(100, 5, BOOTSTRAP_FROM).tolist()
    found = mean_over_boots({str(i): [value] for i, value in enumerate(values)})
    assert found is not None
    assert found.interval == bootstrap(values, lambda drawn: float(drawn.mean()), seed=0)


def test_one_boot_has_no_interval_and_none_has_no_mean() -> None:
    single = mean_over_boots({"a": [1.0, 2.0]})
    assert single is not None
    assert (single.boots, single.mean, single.interval) == (1, 1.5, None)
    assert mean_over_boots({}) is None
