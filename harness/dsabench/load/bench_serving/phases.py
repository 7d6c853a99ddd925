"""Where the time of a run goes. Imports next to nothing, for it is asked before anything else is loaded."""

from __future__ import annotations

import os
import resource
import time


def cpu_s() -> float:
    """CPU seconds of this process since its start and of all children that ended."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


class PhaseClock:
    """CPU and wall seconds of each phase: start, wait, draw, warm_up, connect, load, read, report."""

    def __init__(self) -> None:
        """Ends `start`, which began with the process."""
        self.cpu_s: dict[str, float] = {}
        self.wall_s: dict[str, float] = {}
        self._cpu_s, self._wall_s = 0.0, time.perf_counter() - _age_s()
        self.end("start")

    def end(self, name: str) -> None:
        """What was since the last call belongs to this phase; of several calls the sum."""
        cpu, wall = cpu_s(), time.perf_counter()
        self.cpu_s[name] = self.cpu_s.get(name, 0.0) + cpu - self._cpu_s
        self.wall_s[name] = self.wall_s.get(name, 0.0) + wall - self._wall_s
        self._cpu_s, self._wall_s = cpu, wall

    def end_load(self, load_cpu_s: float, load_wall_s: float) -> None:
        """End `load`, whose own share is known: what was before it is `connect`."""
        self.end("load")
        self.cpu_s["connect"] = max(self.cpu_s["load"] - load_cpu_s, 0.0)
        self.wall_s["connect"] = max(self.wall_s["load"] - load_wall_s, 0.0)
        self.cpu_s["load"] -= self.cpu_s["connect"]
        self.wall_s["load"] -= self.wall_s["connect"]


def _age_s() -> float:
    """Since the process began, to a hundredth of a second (proc(5), `starttime`); 0 where that is not told."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123  (pathlib is not loaded yet)
            began_ticks = int(file.read().rpartition(b")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
