"""Clocks, temperature and throttling of the GPU around a point, from the driver's NVML.

Called through ctypes: the interpreter that has the kernels need not have a binding, and starting nvidia-smi would take
longer than most points.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass

_SLOWED = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
"""Bits of nvmlClocksEventReasons that spoil a time. The power cap (0x4) is what a GPU does under load, and is kept."""
_SM, _MEMORY, _SENSOR = 1, 2, 0
"""NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU (nvml.h)."""


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


def read_state(uuid: str, library: str = "libnvidia-ml.so.1") -> GpuState | None:
    """Of the GPU with this uuid (`GPU-…`) now; None without NVML, or where it does not answer."""
    nvml = _load(library)
    if nvml is None:
        return None
    device = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)):
        return None
    sm, memory, celsius, reasons = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint(), ctypes.c_ulonglong()
    failed = (
        nvml.nvmlDeviceGetClockInfo(device, _SM, ctypes.byref(sm))
        or nvml.nvmlDeviceGetClockInfo(device, _MEMORY, ctypes.byref(memory))
        or nvml.nvmlDeviceGetTemperature(device, _SENSOR, ctypes.byref(celsius))
        or _reasons(nvml)(device, ctypes.byref(reasons))
    )
    return None if failed else GpuState(sm.value, memory.value, celsius.value, reasons.value)


def _reasons(nvml: ctypes.CDLL) -> Callable[..., int]:
    """Renamed with driver 535; the old name is to go."""
    new = "nvmlDeviceGetCurrentClocksEventReasons"
    name = new if hasattr(nvml, new) else "nvmlDeviceGetCurrentClocksThrottleReasons"
    call: Callable[..., int] = getattr(nvml, name)
    return call


@functools.cache
def _load(library: str) -> ctypes.CDLL | None:
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return None
    return None if nvml.nvmlInit_v2() else nvml
