from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dsabench.stats.bootstrap import Values, bootstrap


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
