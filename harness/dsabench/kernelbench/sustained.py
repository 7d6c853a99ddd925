"""A kernel that runs back to back, as in a server under load: the clock that is left, the power, and the time of a call then.

A sample has a pause and a flushed cache before it. A clock that only falls under seconds of work is not seen by it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median

import torch

from dsabench.kernelbench.timers import CudaTimer, Timer
from dsabench.machine.nvml import HELD_DOWN, LIBRARY, NvmlDevice, open_nvml


@dataclass(slots=True)
class GpuReadings:
    """What a GPU said while it was looked at."""

    gpu: NvmlDevice
    clocks_mhz: list[int] = field(default_factory=list)
    reasons: int = 0
    joules: list[tuple[float, float]] = field(default_factory=list)
    """(seconds, counter) where the counter moved: it does so every 20 to 100 ms."""

    def look(self) -> None:
        """One reading of each."""
        clock, reasons, now_j = self.gpu.sm_mhz(), self.gpu.reasons(), self.gpu.energy_j()
        if clock is not None:
            self.clocks_mhz.append(clock)
        self.reasons |= reasons or 0
        if now_j is not None and (not self.joules or now_j != self.joules[-1][1]):
            self.joules.append((time.monotonic(), now_j))

    @property
    def sm_mhz(self) -> int | None:
        """Median of the second half, when the clock has followed the load."""
        late = self.clocks_mhz[len(self.clocks_mhz) // 2 :]
        return round(median(late)) if late else None

    @property
    def power_w(self) -> float | None:
        """Between the first and the last time that the counter was seen to move; None where that was not twice."""
        moved = self.joules[1:]  # the first reading may lie anywhere between two moves
        return (moved[-1][1] - moved[0][1]) / (moved[-1][0] - moved[0][0]) if len(moved) > 1 else None

    @property
    def slowed(self) -> str | None:
        """Every reason that was seen."""
        return ", ".join(word for bit, word in HELD_DOWN.items() if self.reasons & bit) or None


def sustain(timer: Timer, seconds: float, call_us: float, library: str = LIBRARY) -> dict[str, object]:
    """The fields of a point that say so; none of a call that cannot run back to back, and without NVML only the time."""
    gpu = _gpu_of(library) if isinstance(timer, CudaTimer) else None
    readings = None if gpu is None else GpuReadings(gpu)
    took_us = timer.sustain(seconds, call_us, (lambda: None) if readings is None else readings.look)
    if took_us is None:
        return {}
    told: dict[str, object] = {"sustained_us": took_us}
    if readings is not None:
        watts = readings.power_w
        told |= {
            "sustained_sm_mhz": readings.sm_mhz,
            "sustained_power_w": None if watts is None else round(watts, 1),
            "sustained_slowed": readings.slowed,
        }
    return told


def _gpu_of(library: str) -> NvmlDevice | None:
    nvml = open_nvml(library)
    return None if nvml is None else nvml.device(f"GPU-{torch.cuda.get_device_properties().uuid}")
