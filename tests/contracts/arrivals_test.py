"""What holds for every spacing of arrivals."""

from __future__ import annotations

import numpy as np
import pytest

from dsabench.load.schedule import ARRIVALS, AllAtOnce, Arrivals
from factories import make_workload

WORKLOAD = make_workload(burstiness=0.3, ramp_to=80.0)
SPACINGS = {
    **{name: make(50.0, WORKLOAD) for name, make in ARRIVALS.items()},
    "immediate": AllAtOnce(),
}


@pytest.fixture(params=SPACINGS)
def arrivals(request: pytest.FixtureRequest) -> Arrivals:
    return SPACINGS[request.param]


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_gives_as_many_times_as_asked_from_zero_on(arrivals: Arrivals, count: int) -> None:
    times = arrivals.times_s(count, np.random.default_rng(1))
    assert times.shape == (count,)
    assert times.dtype == np.float64
    assert np.all(times[:1] == 0.0)


def test_ascends(arrivals: Arrivals) -> None:
    assert np.all(np.diff(arrivals.times_s(1000, np.random.default_rng(1))) >= 0.0)


def test_equal_seeds_give_equal_times(arrivals: Arrivals) -> None:
    once, again = (arrivals.times_s(100, np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(once, again)
