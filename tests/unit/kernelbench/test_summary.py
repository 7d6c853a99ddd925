from __future__ import annotations

import json
import random

import pytest

from dsabench.kernelbench.request import KernelBenchRequest, KernelPoint, TimingLimits, read_points, read_request
from dsabench.kernelbench.summary import TimingSummary, are_apart, instability, summarise


def test_median_mad_and_an_interval_around_it():
    times = summarise([5.0, 1.0, 3.0, 2.0, 4.0, 100.0, 3.0])
    assert (times.median_us, times.mad_us, times.n) == (3.0, 1.0, 7)
    assert times.low_us == 1.0
    assert times.high_us == 100.0  # 7 samples: only their whole range covers the median 95 times of 100


def test_the_interval_covers_the_true_median_as_often_as_it_says():
    dice = random.Random(1)
    hits = 0
    for _ in range(1000):
        times = summarise([dice.expovariate(1.0) for _ in range(25)])
        hits += times.low_us <= 0.6931 <= times.high_us
    assert hits >= 945


def test_too_few_samples_have_no_interval():
    with pytest.raises(ValueError, match="no 95 % interval"):
        summarise([1.0] * 5)
    assert summarise([1.0] * 6).low_us == 1.0


def test_what_does_not_come_to_rest_is_refused():
    assert instability([10.0, 10.1] * 20, 0.02) is None
    assert "wanted ±2.0%" in (instability([10.0, 14.0] * 20, 0.02) or "")
    assert "moved by" in (instability([10.0] * 120 + [11.0] * 80, 0.02) or "")


def test_a_request_survives_its_line():
    request = KernelBenchRequest("bench", ("a",), dtypes=("fp8",), budget_s=3.0, limits=TimingLimits(half_width=0.1))
    assert read_request(request.line()) == request
    points = [KernelPoint("a", "b", "c", "d")]
    assert read_points(json.dumps(points)) == set(points)


def test_apart_are_medians_more_than_a_percent_away_whose_intervals_do_not_touch():
    def times(median, half):
        return TimingSummary(median, half, median - half, median + half, 15)

    assert are_apart(times(100, 0.5), times(102, 0.5))
    assert not are_apart(times(100, 1.5), times(102, 1.5))
    assert not are_apart(times(100, 0.1), times(100.9, 0.1))
