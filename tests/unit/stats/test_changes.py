from __future__ import annotations

import numpy as np
import pytest

from dsabench.stats.changes import find_changes


def series(*levels: tuple[float, int], spread: float = 0.01, seed: int = 0) -> list[float]:
    rng = np.random.default_rng(seed)
    return [float(level * rng.lognormal(0, spread)) for level, count in levels for _ in range(count)]


def test_a_drop_is_found_where_it_is() -> None:
    (change,) = find_changes(series((100, 12), (94, 10)), "maximize")
    assert abs(change.index - 12) <= 1
    assert change.effect == pytest.approx(-0.06, abs=0.015)
    assert change.is_worse


def test_down_and_up_are_two_changes_and_latency_gets_worse_upwards() -> None:
    found = find_changes(series((100, 10), (120, 10), (100, 10)), "minimize")
    assert [change.index for change in found] == [10, 20]
    assert [change.is_worse for change in found] == [True, False]


def test_noise_alone_is_no_change() -> None:
    alarms = sum(bool(find_changes(series((100, 30), spread=0.05, seed=seed), "maximize")) for seed in range(100))
    assert alarms <= 5


def test_too_short_constant_and_impossible_series_say_nothing() -> None:
    assert find_changes([1.0, 2.0, 3.0], "maximize") == ()
    assert find_changes([5.0] * 20, "maximize") == ()
    assert find_changes([1.0, -1.0] * 10, "maximize") == ()
