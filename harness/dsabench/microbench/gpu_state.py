"""Clocks, temperature and throttling of the GPU around a point, from nvidia-smi (the driver's NVML)."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

_FIELDS = "clocks.sm,clocks.mem,temperature.gpu,clocks_event_reasons.active"
_SLOWED = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
"""Bits of nvmlClocksEventReasons that spoil a time. The power cap (0x4) is what a GPU does under load, and is kept."""


@dataclass(frozen=True, slots=True)
class GpuState:
    """At one moment."""

    sm_mhz: int
    memory_mhz: int
    temperature_c: int
    reasons: int

    @property
    def throttled(self) -> str | None:
        """Why the clocks are down, None where they are not."""
        return next((word for bit, word in _SLOWED.items() if self.reasons & bit), None)


def parse(line: str) -> GpuState | None:
    """`1980, 2619, 41, 0x0000000000000004`; None where a cell is not a number (`[N/A]`)."""
    cells = [cell.strip() for cell in line.split(",")]
    try:
        clock, memory, temperature, reasons = cells
        return GpuState(int(clock), int(memory), int(temperature), int(reasons, 16))
    except ValueError:
        return None


def read_state(uuid: str) -> GpuState | None:
    """Of the GPU with this uuid now; None without nvidia-smi."""
    argv = ("nvidia-smi", f"--id={uuid}", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse(done.stdout.strip()) if done.returncode == 0 else None
