from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dsabench.load.schedule import (
    AllAtOnce,
    ConstantRate,
    GammaArrivals,
    PoissonArrivals,
    RampArrivals,
    arrivals_for,
    exact_arrivals,
)
from dsabench.model.workload import Workload


def test_constant_is_evenly_spaced() -> None:
    np.testing.assert_allclose(ConstantRate(4.0).times_s(4, np.random.default_rng(0)), [0.0, 0.25, 0.5, 0.75])


def test_poisson_distances_are_exponential_with_the_rates_mean() -> None:
    gaps = np.diff(PoissonArrivals(20.0).times_s(5001, np.random.default_rng(0)))
    assert gaps.mean() == pytest.approx(1 / 20.0, rel=0.05)
    assert stats.kstest(gaps, stats.expon(scale=1 / 20.0).cdf).pvalue > 0.01


def test_workload_names_the_spacing() -> None:
    base = {"name": "w", "dataset": "random-ids", "input_len": 1, "output_len": 1, "num_prompts": 1}
    assert arrivals_for(Workload(**base)) == AllAtOnce()
    assert arrivals_for(Workload(**base, request_rate=3.0)) == PoissonArrivals(3.0)
    assert arrivals_for(Workload(**base, request_rate=3.0, arrivals="constant")) == ConstantRate(3.0)
    assert arrivals_for(Workload(**base, request_rate=3.0, arrivals="gamma", burstiness=0.5)) == GammaArrivals(3.0, 0.5)
    assert arrivals_for(Workload(**base, request_rate=3.0, arrivals="ramp", ramp_to=9.0)) == RampArrivals(3.0, 9.0)


def test_gamma_keeps_the_mean_and_spreads_with_its_burstiness() -> None:
    gaps = np.diff(GammaArrivals(20.0, 0.25).times_s(20_001, np.random.default_rng(0)))
    assert gaps.mean() == pytest.approx(1 / 20.0, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.05)
    assert stats.kstest(gaps, stats.gamma(0.25, scale=1 / 5.0).cdf).pvalue > 0.01


@pytest.mark.parametrize(("first", "last"), [(2.0, 10.0), (10.0, 2.0), (5.0, 5.0)])
def test_a_ramp_begins_and_ends_at_its_rates(first: float, last: float) -> None:
    times = RampArrivals(first, last).times_s(2001, np.random.default_rng(0))
    rates = 1 / np.diff(times)
    assert rates[0] == pytest.approx(first, rel=0.02)
    assert rates[-1] == pytest.approx(last, rel=0.02)
    halfway = np.searchsorted(times, times[-1] / 2)
    assert rates[halfway] == pytest.approx((first + last) / 2, rel=0.02)


def test_departures_last_until_the_gap_after_the_last_request() -> None:
    rng = np.random.RandomState(3)
    departures = exact_arrivals(5, 10.0, rng)
    alone = np.random.RandomState(3).exponential(0.1, 5)
    np.testing.assert_allclose(np.diff([*departures.due_s, departures.end_s]), alone)
    bursts = exact_arrivals(20_000, 10.0, np.random.RandomState(3), burstiness=4.0)
    gaps = np.diff(bursts.due_s)
    assert gaps.std() / gaps.mean() == pytest.approx(0.5, rel=0.05)
    assert exact_arrivals(3, float("inf"), rng).end_s == 0.0
