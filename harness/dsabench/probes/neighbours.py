"""How much of our cores other processes used while we measured: the commonest reason why two boots differ."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Self

import psutil

from dsabench.probes.cpu_time import read_cpu_time
from dsabench.probes.marked import marked


@dataclass(frozen=True, slots=True)
class CpuUse:
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

    def others_share(self, earlier: CpuUse) -> float:
        """Share of the cores' time since then that went to others, 0.0 to 1.0."""
        wall_s = (self.at_s - earlier.at_s) * len(self.cores)
        others_s = (self.all_s - earlier.all_s) - (self.ours_s - earlier.ours_s)
        return min(1.0, max(0.0, others_s / wall_s)) if wall_s > 0 else 0.0


def _ours_s(mark: tuple[str, str] | None) -> float:
    """This process and its descendants, ended children included, and what is marked."""
    me = psutil.Process()
    ours = {me, *me.children(recursive=True)}
    total_s = 0.0
    for process in ours if mark is None else {*ours, *marked(*mark)}:
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        total_s += used.user + used.system + used.children_user + used.children_system
    return total_s
