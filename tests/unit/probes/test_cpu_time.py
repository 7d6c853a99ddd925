from __future__ import annotations

import os

import pytest

from dsabench.probes.cpu_time import CpuTime, cpu_time, read_cpu_time, read_pressure_s

STAT = """cpu  5420954 461058 557014 7811264 42860 0 61761 12581 0 0
cpu0 2689943 200290 280337 3958359 7674 0 42366 5655 0 0
cpu1 2731010 260768 276677 3852904 35185 0 19395 6926 0 0
cpu10 1 1 1 1 1 1 1 1 1 1
intr 1434 0 0
ctxt 10
"""
"""Of a virtual machine after a day; cpu10 is made up."""


def test_a_core_is_what_its_line_says() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    used, idle = 2731010 + 260768 + 276677 + 0 + 19395, 3852904 + 35185
    assert cpu_time(STAT, [1]) == pytest.approx(CpuTime(used / ticks, 6926 / ticks, (used + idle + 6926) / ticks))
    assert cpu_time(STAT, [10]) == pytest.approx(CpuTime(5 / ticks, 1 / ticks, 8 / ticks))
    assert cpu_time(STAT, [0, 1]).stolen_s == pytest.approx(12581 / ticks)
    assert cpu_time(STAT, [7]) == (0, 0, 0)


def test_this_machines_counters_grow() -> None:
    cores = sorted(os.sched_getaffinity(0))
    before, pressure_s = read_cpu_time(cores), read_pressure_s()
    sum(range(5_000_000))
    after, later_s = read_cpu_time(cores), read_pressure_s()
    assert before.used_s < after.used_s <= after.all_s
    assert before.stolen_s <= after.stolen_s
    if pressure_s is not None:
        assert later_s is not None
        assert pressure_s <= later_s
