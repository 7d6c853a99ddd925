from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dsabench.stats.proportion import wilson


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
