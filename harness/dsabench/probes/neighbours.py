"""How much of our cores other processes used while we measured: the commonest reason why two boots differ."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import psutil

from dsabench.probes.marked import marked

_WARNING = "other processes used"
WARN_SHARE = 0.1
"""From here on the numbers are worth a warning: a tenth of the cores' time went elsewhere."""


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
        per_core = psutil.cpu_times(percpu=True)
        busy_s = sum(_busy_s(per_core[core]) for core in chosen if core < len(per_core))
        return cls(time.monotonic(), chosen, busy_s, _ours_s(mark))

    def others_share(self, earlier: CpuUse) -> float:
        """Share of the cores' time since then that went to others, 0.0 to 1.0."""
        wall_s = (self.at_s - earlier.at_s) * len(self.cores)
        others_s = (self.all_s - earlier.all_s) - (self.ours_s - earlier.ours_s)
        return min(1.0, max(0.0, others_s / wall_s)) if wall_s > 0 else 0.0


def warn_of(share: float) -> str | None:
    """One line where others used enough to matter."""
    if share < WARN_SHARE:
        return None
    return f"{_WARNING} {share:.0%} of the measured cores: expect wide intervals, or measure again when idle"


def is_disturbed(warnings: Iterable[str]) -> bool:
    """Whether a record's warnings say that its measurement was not alone on its cores."""
    return any(warning.startswith(_WARNING) for warning in warnings)


def _busy_s(times: psutil._ntuples.scputimes) -> float:
    # Time stolen by the hypervisor counts as somebody else's use; guest time is part of user time already.
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


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
