from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from dsabench.machine.cpu_use import CpuSnapshot, CpuTime, cpu_time, read_cpu_time, read_pressure_s, warn_of_others

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


pytestmark = pytest.mark.timing

SPIN = "import time\nwhile time.process_time() < 0.4: pass"
"""So much CPU time, however long that takes beside others."""


def test_our_own_children_are_not_others() -> None:
    core = min(os.sched_getaffinity(0))
    before = CpuSnapshot.now((core,))
    spinning = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", SPIN])
    spinning.wait()
    after = CpuSnapshot.now((core,))
    ours = after.ours_s - before.ours_s
    assert ours > 0.3
    assert after.others_share(before) <= 1.0 - ours / (after.at_s - before.at_s) + 0.15


def test_somebody_elses_work_counts() -> None:
    core = min(os.sched_getaffinity(0))
    # A process that is not below us: its parent ends at once, so it falls to the system's init.
    code = f"import subprocess, sys; subprocess.Popen(['taskset', '-c', '{core}', sys.executable, '-c', {SPIN!r}])"
    before = CpuSnapshot.now((core,))
    subprocess.run([sys.executable, "-c", code], check=True)
    time.sleep(0.9)
    others = CpuSnapshot.now((core,)).others_share(before)
    assert others > 0.2
    assert "other processes used" in (warn_of_others(others) or "")
    assert not [p for p in psutil.Process().children() if p.status() == psutil.STATUS_ZOMBIE]


def test_a_quiet_machine_is_not_warned_of() -> None:
    assert warn_of_others(0.05) is None
