"""CPU time used by this run, by other processes and by the hypervisor, and the warnings about it.

It is read from /proc and not through psutil, whose import would cost each load test 12 ms.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    import psutil

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STAT, _PRESSURE = Path("/proc/stat"), Path("/proc/pressure/cpu")


class CpuTime(NamedTuple):
    """Seconds since the machine started, summed over some cores."""

    used_s: float
    """Used by processes, guests and the kernel."""
    stolen_s: float
    """A core was needed, but the hypervisor gave it to another machine."""
    all_s: float
    """Used, stolen and idle."""


def read_cpu_time(cores: Sequence[int]) -> CpuTime:
    """Read the CPU time of these cores. Offline cores count 0."""
    return cpu_time(_STAT.read_text(encoding="ascii"), cores)


def cpu_time(stat: str, cores: Sequence[int]) -> CpuTime:
    """Parse the text of /proc/stat (proc(5): user nice system idle iowait irq softirq steal guest guest_nice)."""
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
    """Seconds in which at least one task of the machine waited for a core; None if the kernel does not count them."""
    try:
        some, _, _ = _PRESSURE.read_text(encoding="ascii").partition("\n")
    except OSError:  # no such file, or switched off (psi=0)
        return None
    return int(some.rpartition("total=")[2]) / 1e6


_OTHERS, _HYPERVISOR = "other processes used", "the hypervisor took"
OTHERS_WARN = 0.1
"""Share of the cores' time used by others from which a record gets a warning."""
STEAL_WARN = 0.05
"""Share of the needed time that the hypervisor took, from which a record gets a warning. It is relative to the time in
which a core was needed: beside a GPU most cores idle, and a share of the whole time would hide it.
"""
STOLEN_CORES_MIN = 0.05
"""Stolen cores below which there is no warning: the share above would then be one of very little."""


def warn_of_others(share: float) -> str | None:
    """A warning if other processes used enough of the measured cores to matter; else None."""
    if share < OTHERS_WARN:
        return None
    return f"{_OTHERS} {share:.0%} of the measured cores: expect wide intervals, or measure again when idle"


def warn_of_steal(of_wanted: float, cores: float) -> str | None:
    """A warning if the hypervisor took enough to matter; else None."""
    if of_wanted < STEAL_WARN or cores < STOLEN_CORES_MIN:
        return None
    return (
        f"{_HYPERVISOR} {of_wanted:.0%} of the CPU time that was wanted ({cores:.2f} cores): other machines share these cores; "
        "expect wide intervals, and measure on cores of your own"
    )


def is_disturbed(warnings: Iterable[str]) -> bool:
    """Whether the warnings of a record say that other processes disturbed its measurement."""
    return any(warning.startswith((_OTHERS, _HYPERVISOR)) for warning in warnings)


def processes_with(name: str, value: str) -> list[psutil.Process]:
    """All readable processes with this variable in their environment. Takes a few ms per 100 processes."""
    import psutil  # noqa: PLC0415  (see above)

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended, or belongs to another user
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def wanted_core_s(pid: int) -> dict[int, float]:
    """Per thread of a process, the seconds so far in which it ran or waited for a core (proc(5), `schedstat`).

    A thread that computes all the time wants all of it, however many others share its cores. Empty for a process that cannot be read.
    """
    found = {}
    for thread in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it has ended, or the kernel does not tell
            ran_ns, waited_ns, _ = (thread / "schedstat").read_text(encoding="ascii").split()
            found[int(thread.name)] = (int(ran_ns) + int(waited_ns)) / 1e9
    return found


def wanted_by_threads(pids: Iterable[int]) -> dict[tuple[int, int], float]:
    """Process and thread → the same."""
    return {(pid, thread): seconds for pid in pids for thread, seconds in wanted_core_s(pid).items()}


def busiest_thread_s(before: Mapping[tuple[int, int], float], now: Mapping[tuple[int, int], float]) -> float | None:
    """What the busiest of the threads wanted since then; None if none was there before."""
    return max((seconds - before[thread] for thread, seconds in now.items() if thread in before), default=None)


@dataclass(frozen=True, slots=True)
class CpuSnapshot:
    """CPU seconds used so far on some cores, by all processes and by this one with its children."""

    at_s: float
    cores: tuple[int, ...]
    all_s: float
    ours_s: float

    @classmethod
    def now(cls, cores: tuple[int, ...], mark: tuple[str, str] | None = None) -> Self:
        """Read the counters of these cores; empty means all cores of this process.

        Processes with the variable `mark` in their environment count as ours too. A container is a child of its
        engine, so only the mark shows that it is ours.
        """
        chosen = cores or tuple(sorted(os.sched_getaffinity(0)))
        return cls(time.monotonic(), chosen, read_cpu_time(chosen).used_s, _ours_s(mark))

    def others_share(self, earlier: CpuSnapshot) -> float:
        """Share of the cores' time that other processes used since then, 0.0 to 1.0."""
        wall_s = (self.at_s - earlier.at_s) * len(self.cores)
        others_s = (self.all_s - earlier.all_s) - (self.ours_s - earlier.ours_s)
        return min(1.0, max(0.0, others_s / wall_s)) if wall_s > 0 else 0.0

    def others_cores(self, earlier: CpuSnapshot) -> float:
        """The same as an average number of cores."""
        return self.others_share(earlier) * len(self.cores)


def _ours_s(mark: tuple[str, str] | None) -> float:
    """CPU time of this process, its descendants (ended ones too) and marked processes."""
    import psutil  # noqa: PLC0415  (see above)

    me = psutil.Process()
    ours = {me, *me.children(recursive=True)}
    total_s = 0.0
    for process in ours if mark is None else {*ours, *processes_with(*mark)}:
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        total_s += used.user + used.system + used.children_user + used.children_system
    return total_s
