"""Rows as an observer writes them → how the window was spent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from dsabench.machine.usage import MachineSamples, TimeWindow

START_S = 1000.0
END_S = 1010.0
WINDOW = TimeWindow(START_S, END_S)
ALL_WORK = [(START_S, END_S)]
CORES = 4
USED, STOLEN, PRESSURE = 0.5, 0.05, 0.25
"""Shares that the rows below grow by."""


def course(gpus: Sequence[Sequence[Sequence[float]]] = (), every_s: float = 0.2) -> MachineSamples:
    """Looks from a second before the window until one after it. `gpus` has a row of seven for each look, or one for all."""
    at_s = np.arange(START_S - 1, END_S + 1.01, every_s)
    gone_s = at_s - at_s[0]
    cpu = [at_s, gone_s * USED * CORES, gone_s * STOLEN * CORES, gone_s * CORES, gone_s * PRESSURE]
    tables = [np.broadcast_to(np.array(gpu, np.float64), (len(at_s), 7)) for gpu in gpus]
    return MachineSamples(np.column_stack([*cpu, *tables]), CORES, tuple(map(str, range(len(tables)))))


def looks(**columns: object) -> list[list[float]]:
    """One row a look: a busy H200, with some columns otherwise (a value, or a function of the time)."""
    names = ("busy", "mhz", "celsius", "reasons", "free", "energy", "power")
    usual: dict[str, object] = {
        "busy": 0.97, "mhz": 1980.0, "celsius": 55.0, "reasons": 0.0, "free": 8000.0,
        "energy": lambda at_s: 600.0 * at_s, "power": math.nan,
    }  # fmt: skip
    made = usual | columns
    times = np.arange(START_S - 1, END_S + 1.01, 0.2)
    return [[value(at_s) if callable(value := made[name]) else value for name in names] for at_s in times]  # type: ignore[misc]


def test_cores() -> None:
    cpu = course().cpu(WINDOW)
    assert (cpu.busy_share, cpu.stolen_share, cpu.pressure_share) == pytest.approx((USED, STOLEN, PRESSURE))
    assert cpu.stolen_of_wanted == pytest.approx(STOLEN / (USED + STOLEN))
    assert cpu.stolen_cores == pytest.approx(STOLEN * CORES)


def test_two_looks_are_enough_for_cores_and_pressure_may_be_unknown() -> None:
    rows = np.array([[999.9, 10, 0, 40, math.nan], [1010.1, 15, 1, 80, math.nan]])
    told = MachineSamples(rows, CORES, ())
    assert told.covers(WINDOW)
    cpu = told.cpu(WINDOW)
    assert (cpu.busy_share, cpu.stolen_share, cpu.pressure_share) == (
        pytest.approx(5 / 40),
        pytest.approx(1 / 40),
        None,
    )


def test_idle_time_that_is_counted_back_makes_no_share_above_one() -> None:
    rows = np.array([[999.9, 10, 0, 40, math.nan], [1010.1, 50.01, 0, 80, math.nan]])
    assert MachineSamples(rows, CORES, ()).cpu(WINDOW).busy_share == 1.0


def test_a_window_that_was_not_seen_whole_is_not_covered() -> None:
    assert course().covers(WINDOW)
    assert not course().covers(TimeWindow(START_S - 2, END_S))
    assert not course().covers(TimeWindow(START_S, END_S + 2))
    assert not MachineSamples(np.empty((0, 5)), CORES, ()).covers(WINDOW)


def test_a_busy_gpu() -> None:
    gpu = course([looks()]).gpu(0, WINDOW, ALL_WORK)
    assert (gpu.name, gpu.readings, gpu.sm_mhz, gpu.sm_mhz_min, gpu.temperature_c) == ("0", 50, 1980, 1980, 55)
    assert (gpu.busy_share, gpu.busy_at_work) == pytest.approx((0.97, 0.97))
    assert gpu.energy_j == pytest.approx(6000)
    assert gpu.power_w == pytest.approx(600)
    assert (gpu.throttled_share, gpu.capped_share, gpu.slowed_by) == (0, 0, ())


def test_energy_is_that_of_the_window_whatever_the_looks_missed() -> None:
    """100 W before and after, 700 W in it: the edges lie between two looks, and cost no more than a look's distance."""
    used_j = [100 * (t - 999) if t < 1000 else 100 + 700 * (t - 1000) if t < 1010 else 7100 + 100 * (t - 1010)
              for t in np.arange(999, 1011.01, 0.2)]  # fmt: skip
    rows = [[*look[:5], joules, look[6]] for look, joules in zip(looks(), used_j, strict=True)]
    shifted = TimeWindow(START_S + 0.07, END_S - 0.05)
    assert course([rows]).gpu(0, shifted, ALL_WORK).energy_j == pytest.approx(700 * shifted.duration_s, rel=1e-3)


def test_looks_outside_the_window_do_not_count() -> None:
    outside = looks(
        mhz=lambda t: 1980 if START_S <= t <= END_S else 210,
        celsius=lambda t: 55 if t <= END_S else 90,
        free=lambda t: 70_000 if t < START_S + 5 else 8000 if t <= END_S else 900,
        busy=lambda t: 0.9 if START_S + 0.9 < t <= END_S else 0,
    )
    gpu = course([outside]).gpu(0, WINDOW, ALL_WORK)
    assert (gpu.sm_mhz_min, gpu.temperature_c, gpu.free_mib) == (1980, 55, 8000)
    assert gpu.busy_share == pytest.approx(0.9)  # the first second's looks tell of what was before, too


def test_what_a_gpu_does_not_tell_is_absent() -> None:
    nothing = course([[[math.nan] * 7]]).gpu(0, WINDOW, ALL_WORK)
    assert nothing[1:] == (0, None, 0, None, None, None, None, None, None, None, None, None, ())
    powered = course([looks(energy=math.nan, power=lambda t: 650.0 if t < 1005 else 350.0)]).gpu(0, WINDOW, ALL_WORK)
    assert powered.energy_j is None
    assert powered.power_w == pytest.approx(500, abs=5)


def test_a_short_window_has_no_busy_share() -> None:
    gpu = course([looks()]).gpu(0, TimeWindow(START_S, START_S + 2), ALL_WORK)
    assert (gpu.busy_share, gpu.busy_at_work, gpu.sm_mhz) == (None, None, 1980)


def test_waiting_for_work_is_not_idling_at_work() -> None:
    """One request in the first half, and nothing to do afterwards."""
    half = looks(busy=lambda t: 0.95 if t < START_S + 5.1 else 0.0)
    gpu = course([half]).gpu(0, WINDOW, [(START_S, START_S + 5)])
    assert gpu.busy_share is not None
    assert gpu.busy_share < 0.5
    assert gpu.busy_at_work == pytest.approx(0.95)
    unworked = course([half]).gpu(0, WINDOW, [])
    assert unworked.busy_at_work is None


def test_requests_one_after_another_are_work_all_the_time() -> None:
    spans = [(START_S + i / 4, START_S + (i + 1) / 4 - 0.005) for i in range(40)]
    overlapping = [*spans, (START_S + 2, START_S + 6), (START_S + 3, START_S + 4)]
    for work in (spans, overlapping[::-1]):
        assert course([looks(busy=0.4)]).gpu(0, WINDOW, work).busy_at_work == pytest.approx(0.4)
    sparse = [(at_s, at_s + 0.1) for at_s, _ in spans]
    assert course([looks(busy=0.4)]).gpu(0, WINDOW, sparse).busy_at_work is None


def test_why_clocks_were_down() -> None:
    hot = looks(reasons=lambda t: 0x40 | 0x4 if t > START_S + 8 else 0x4)
    gpu = course([looks(), hot]).gpu(1, WINDOW, ALL_WORK)
    assert gpu.capped_share == 1
    assert gpu.throttled_share == pytest.approx(0.2, abs=0.03)
    assert gpu.slowed_by == ("hardware thermal",)
