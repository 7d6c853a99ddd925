from __future__ import annotations

import numpy as np
import pytest

from dsabench.model.sample import Frames
from dsabench.reporting.over_time import (
    Bins,
    gaps_over_time,
    in_flight_over_time,
    largest_over_time,
    quantiles_over_time,
    token_rates,
)
from unit.load.made import closed_loop, sample


def test_bins_cover_the_run_in_round_pieces() -> None:
    bins = Bins.over([sample(0, 0.0, 63.0)])
    assert (bins.width_s, bins.count, bins.edges_s[-1]) == (1.0, 63, 63.0)
    assert Bins.over([sample(0, 0.0, 100_000.0)]).count == 80
    assert Bins.over([sample(0, 0.0, 0.001)]).count == 1


def test_tokens_and_requests_are_all_there() -> None:
    samples = closed_loop(4, 10)
    bins = Bins.over(samples)
    assert (token_rates(samples, bins) * bins.width_s).sum() == pytest.approx(400)
    flight = in_flight_over_time(samples, bins)
    assert (flight * bins.width_s).sum() == pytest.approx(40.0)  # seconds in flight
    assert flight[len(flight) // 2] == pytest.approx(4.0)


def test_a_frame_of_three_tokens_is_three_gaps() -> None:
    ends_s, gaps_ms = gaps_over_time([sample(0, frames=Frames.of([(0.1, 1), (0.4, 3), (0.5, 1)]))])
    assert ends_s.tolist() == [0.4, 0.4, 0.4, 0.5]
    assert gaps_ms.tolist() == pytest.approx([100, 100, 100, 100])


def test_a_bin_with_too_few_values_has_no_percentile() -> None:
    bins = Bins(np.array([0.0, 1.0, 2.0, 3.0]), 1.0)
    at_s = np.array([0.5] * 500 + [1.5] * 20 + [2.5])
    values = np.arange(521.0)
    median, tail = quantiles_over_time(at_s, values, bins, (0.5, 0.99))
    assert (median[0], tail[0]) == pytest.approx((249.5, 494.01))
    assert median[1] == 509.5
    assert np.isnan([median[2], tail[1], tail[2]]).all()
    assert largest_over_time(at_s, values, bins).tolist() == [499.0, 519.0, 520.0]
