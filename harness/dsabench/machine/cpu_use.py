"""CPU time used by us, by other processes and by the hypervisor, and the warnings about it.

Read from /proc, not through psutil: a load test from the command line would pay 12 ms for importing that.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    import psutil

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


_OTHERS, _HYPERVISOR = "other processes used", "the hypervisor took"
OTHERS_WARN = 0.1
"""From here on the numbers are worth a warning: a tenth of the cores' time went elsewhere."""
STEAL_WARN = 0.05
"""Share of the time in which a core was wanted: what the CPU does takes a twentieth longer, and by how much changes from run
to run. Of the cores' whole time it would hide where most of them idle, as beside a GPU."""
STOLEN_CORES_MIN = 0.05
"""As a number of cores: the one thread that everything waits for lost no more than this of its time to the hypervisor, and
where it is less, the share above is one of very little."""


def warn_of_others(share: float) -> str | None:
    """One line where other processes used enough of the measured cores to matter."""
    if share < OTHERS_WARN:
        return None
    return f"{_OTHERS} {share:.0%} of the measured cores: expect wide intervals, or measure again when idle"


def warn_of_steal(of_wanted: float, cores: float) -> str | None:
    """One line where the hypervisor took enough to matter."""
    if of_wanted < STEAL_WARN or cores < STOLEN_CORES_MIN:
        return None
    return (
        f"{_HYPERVISOR} {of_wanted:.0%} of the CPU time that was wanted ({cores:.2f} cores): other machines share these cores; "
        "expect wide intervals, and measure on cores of your own"
    )


def is_disturbed(warnings: Iterable[str]) -> bool:
    """Whether a record's warnings say that its measurement was not alone on its cores."""
    return any(warning.startswith((_OTHERS, _HYPERVISOR)) for warning in warnings)


def processes_with(name: str, value: str) -> list[psutil.Process]:
    """All that have it and that we may look at. Takes a few ms per 100 processes."""
    import psutil  # noqa: PLC0415  (see above)

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # gone meanwhile, or not ours to look at
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@dataclass(frozen=True, slots=True)
class CpuSnapshot:
    """CPU seconds used so far on some cores, by everybody and by this process with all that it started."""

    at_s: float
    cores: tuple[int, ...]
    all_s: float
    ours_s: float

    @classmethod
    def now(cls, cores: tuple[int, ...], mark: tuple[str, str] | None = None) -> Self:
        """Read the counters of these cores; empty means all that this process may use.

        Processes with that variable in their environment are ours too: a container's are its engine's children.
        """
        chosen = cores or tuple(sorted(os.sched_getaffinity(0)))
        return cls(time.monotonic(), chosen, read_cpu_time(chosen).used_s, _ours_s(mark))

    def others_share(self, earlier: CpuSnapshot) -> float:
        """Share of the cores' time since then that went to others, 0.0 to 1.0."""
        wall_s = (self.at_s - earlier.at_s) * len(self.cores)
        others_s = (self.all_s - earlier.all_s) - (self.ours_s - earlier.ours_s)
        return min(1.0, max(0.0, others_s / wall_s)) if wall_s > 0 else 0.0

    def others_cores(self, earlier: CpuSnapshot) -> float:
        """The same as a number of cores, on the average."""
        return self.others_share(earlier) * len(self.cores)


def _ours_s(mark: tuple[str, str] | None) -> float:
    """This process and its descendants, ended children included, and what is marked."""
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
