"""Time of CPU cores by the kernel's counters: used, stolen, in all; and how long somebody waited for a core.

Read from /proc, not through psutil: a load test from the command line would pay 12 ms for importing that.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STAT, _PRESSURE = Path("/proc/stat"), Path("/proc/pressure/cpu")


class CpuTime(NamedTuple):
    """Seconds since the machine's start, summed over some cores."""

    used_s: float
    """By processes and the kernel; guests are in it."""
    stolen_s: float
    """A core was wanted, and the hypervisor let another machine have it."""
    all_s: float
    """Used, stolen and idle."""


def read_cpu_time(cores: Sequence[int]) -> CpuTime:
    """Of these cores; those that are offline count nothing."""
    return cpu_time(_STAT.read_text(encoding="ascii"), cores)


def cpu_time(stat: str, cores: Sequence[int]) -> CpuTime:
    """The same from the text of /proc/stat (proc(5): user nice system idle iowait irq softirq steal guest guest_nice)."""
    wanted = {f"cpu{core}" for core in cores}
    used = stolen = idle = 0
    for line in stat.splitlines():
        name, _, times = line.partition(" ")
        if name in wanted:
            user, nice, system, own_idle, iowait, irq, softirq, steal = map(int, times.split()[:8])
            used += user + nice + system + irq + softirq
            stolen += steal
            idle += own_idle + iowait
    return CpuTime(used / _TICKS_PER_S, stolen / _TICKS_PER_S, (used + stolen + idle) / _TICKS_PER_S)


def read_pressure_s() -> float | None:
    """Seconds in which at least one task of the machine waited for a core; None where the kernel does not count them."""
    try:
        some, _, _ = _PRESSURE.read_text(encoding="ascii").partition("\n")
    except OSError:  # no such file, or switched off (psi=0)
        return None
    return int(some.rpartition("total=")[2]) / 1e6
