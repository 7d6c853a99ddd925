from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dsabench.load.arrivals import Constant, Immediate, Poisson, arrivals_for
from dsabench.model.workload import Workload


def test_constant_is_evenly_spaced() -> None:
    np.testing.assert_allclose(Constant(4.0).times_s(4, np.random.default_rng(0)), [0.0, 0.25, 0.5, 0.75])


def test_poisson_distances_are_exponential_with_the_rates_mean() -> None:
    gaps = np.diff(Poisson(20.0).times_s(5001, np.random.default_rng(0)))
    assert gaps.mean() == pytest.approx(1 / 20.0, rel=0.05)
    assert stats.kstest(gaps, stats.expon(scale=1 / 20.0).cdf).pvalue > 0.01


def test_workload_names_the_spacing() -> None:
    base = {"name": "w", "dataset": "random-ids", "input_len": 1, "output_len": 1, "num_prompts": 1}
    assert arrivals_for(Workload(**base)) == Immediate()
    assert arrivals_for(Workload(**base, request_rate=3.0)) == Poisson(3.0)
    assert arrivals_for(Workload(**base, request_rate=3.0, arrivals="constant")) == Constant(3.0)
