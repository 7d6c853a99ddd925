"""How cores and GPUs spent a measured window, computed from the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dsabench.machine.nvml import POWER_CAP, SLOWED
from dsabench.machine.sampler import (
    ALL_S,
    AT_S,
    BUSY_SHARE,
    CPU_COLUMNS,
    ENERGY_J,
    FREE_MIB,
    GPU_COLUMNS,
    POWER_W,
    PRESSURE_S,
    REASONS,
    SM_MHZ,
    STOLEN_S,
    TEMPERATURE_C,
    USED_S,
    MachineSampler,
)

Floats = npt.NDArray[np.float64]

BUSY_LOOKS_BACK_S = 1.0
"""The longest sampling period of NVML's busy share. A sample reports on up to this time before it, so the samples in
the first second of a window report partly on the time before the window.
"""
READINGS_MIN = 10
"""Samples of the busy share below which it is not reported. Each covers 1/6 s to 1 s; three seconds give ten of them.
"""
AT_WORK = 0.95
"""A sample counts as "at work" if there was work in this share of its period. An idle GPU then did not wait for work.
"""


class TimeWindow(NamedTuple):
    """A window in seconds on the clock of `perf_counter`."""

    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """Its length in seconds."""
        return self.end_s - self.start_s


class CpuUsage(NamedTuple):
    """Use of all sampled cores together."""

    cores: int
    busy_share: float
    stolen_share: float
    """Shares of the cores' time."""
    stolen_of_wanted: float
    """Share of the time in which a core was needed, so everything took longer by this share."""
    stolen_cores: float
    """Number of cores."""
    pressure_share: float | None
    """Share of the window in which at least one task of the whole machine waited for a core."""


class GpuUsage(NamedTuple):
    """Use of one GPU. A value is None if the GPU did not report it, or not often enough."""

    name: str
    readings: int
    busy_share: float | None
    busy_readings: int
    busy_at_work: float | None
    """The busy share of the samples during which there was always work."""
    sm_mhz: float | None
    sm_mhz_min: float | None
    power_w: float | None
    energy_j: float | None
    temperature_c: float | None
    """The highest."""
    free_mib: float | None
    """The least. A runtime keeps what it once took, so this is what its largest step left."""
    capped_share: float | None
    """Share of the samples in which the power limit reduced the clocks."""
    throttled_share: float | None
    """Share of the samples with a reason that makes timings useless."""
    slowed_by: tuple[str, ...]
    """Those reasons."""


class MachineSamples(NamedTuple):
    """All samples of a load: the rows of `MachineReader.look`."""

    rows: Floats
    cores: int
    gpus: tuple[str, ...]

    @classmethod
    def of(cls, observer: MachineSampler) -> Self:
        """The samples of a sampler that has ended."""
        rows = np.array(observer.rows, np.float64).reshape(-1, CPU_COLUMNS + GPU_COLUMNS * len(observer.gpus))
        return cls(rows, len(observer.cores), observer.gpus)

    def covers(self, window: TimeWindow) -> bool:
        """Whether sampling started before the window and ended after it."""
        at_s = self.rows[:, AT_S]
        return len(at_s) > 1 and bool(at_s[0] <= window.start_s < window.end_s <= at_s[-1])

    def cpu(self, window: TimeWindow) -> CpuUsage:
        """Use of the cores in a window that the samples cover."""
        used_s, stolen_s, all_s, pressure_s = (
            self._growth(column, window) for column in (USED_S, STOLEN_S, ALL_S, PRESSURE_S)
        )
        assert used_s is not None
        assert stolen_s is not None
        assert all_s is not None
        return CpuUsage(
            cores=self.cores,
            busy_share=_ratio(used_s, all_s),
            stolen_share=_ratio(stolen_s, all_s),
            stolen_of_wanted=_ratio(stolen_s, used_s + stolen_s),
            stolen_cores=_ratio(stolen_s, all_s) * self.cores,
            pressure_share=None if pressure_s is None else min(1.0, pressure_s / window.duration_s),
        )

    def gpu(self, place: int, window: TimeWindow, work: Sequence[tuple[float, float]]) -> GpuUsage:
        """Use of one GPU in the window. `work` holds the spans, on the same clock, in which there was something to do."""
        at_s = self.rows[:, AT_S]
        inside = (at_s >= window.start_s) & (at_s <= window.end_s)
        first = CPU_COLUMNS + GPU_COLUMNS * place
        clocks = _told(self.rows[inside, first + SM_MHZ])
        celsius, reasons, free = (
            _told(self.rows[inside, first + column]) for column in (TEMPERATURE_C, REASONS, FREE_MIB)
        )
        looks_back = inside & (at_s >= window.start_s + BUSY_LOOKS_BACK_S)
        busy = self.rows[looks_back, first + BUSY_SHARE]
        at_work = busy[_shares_of(work, at_s[looks_back] - BUSY_LOOKS_BACK_S, at_s[looks_back]) >= AT_WORK]
        energy_j = self._growth(first + ENERGY_J, window)
        power_w = _mean(_told(self.rows[inside, first + POWER_W]))
        return GpuUsage(
            name=self.gpus[place],
            readings=len(clocks),
            busy_share=_mean(_told(busy), READINGS_MIN),
            busy_readings=len(_told(busy)),
            busy_at_work=_mean(_told(at_work), READINGS_MIN),
            sm_mhz=_mean(clocks),
            sm_mhz_min=float(clocks.min()) if len(clocks) else None,
            power_w=power_w if energy_j is None else energy_j / window.duration_s,
            energy_j=energy_j,
            temperature_c=float(celsius.max()) if len(celsius) else None,
            free_mib=float(free.min()) if len(free) else None,
            capped_share=_seen(reasons, POWER_CAP) if len(reasons) else None,
            throttled_share=_seen(reasons, sum(SLOWED)) if len(reasons) else None,
            slowed_by=tuple(word for bit, word in SLOWED.items() if len(reasons) and _seen(reasons, bit)),
        )

    def _growth(self, column: int, window: TimeWindow) -> float | None:
        """Growth of a counter in the window. Between two samples it is interpolated."""
        values = self.rows[:, column]
        if np.isnan(values).any():
            return None
        before, after = np.interp(window, self.rows[:, AT_S], values)
        return float(after - before)


def _shares_of(work: Sequence[tuple[float, float]], from_s: Floats, until_s: Floats) -> Floats:
    """The share of each span from … until in which there was work."""
    if not len(work) or not len(from_s):
        return np.zeros(len(from_s))
    spans = np.array(sorted(work), np.float64)
    ends = np.maximum.accumulate(spans[:, 1])
    begins = np.maximum(spans[:, 0], np.concatenate([spans[:1, 0], ends[:-1]]))  # count overlapping spans once
    ends = np.maximum(begins, ends)
    edges = np.column_stack([begins, ends]).ravel()
    worked_s = np.cumsum(np.column_stack([np.zeros(len(ends)), ends - begins]).ravel())
    done_s = np.interp(until_s, edges, worked_s) - np.interp(from_s, edges, worked_s)
    return np.asarray(done_s / (until_s - from_s), np.float64)


def _told(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def _mean(values: Floats, least: int = 1) -> float | None:
    return float(values.mean()) if len(values) >= least else None


def _seen(reasons: Floats, bits: int) -> float:
    """Share of the samples with any of these bits."""
    return float(np.mean(reasons.astype(np.uint64) & np.uint64(bits) != 0))


def _ratio(part: float, whole: float) -> float:
    """0 divided by 0 is None. Idle time may be counted back by a tick, so a share may exceed 1; it is cut."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0
