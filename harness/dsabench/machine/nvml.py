"""Ask the GPU driver (NVML) through ctypes.

The interpreter with the kernels may have no binding of NVML, and starting nvidia-smi takes too long. Functions,
structures and bits are those of nvml.h. Imports only the standard library.
"""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

POWER_CAP = 0x4
"""The power limit is reached. This is normal under load."""
SLOWED = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
"""Reasons that make a timing useless."""
HELD_DOWN = {POWER_CAP: "power cap", **SLOWED}
"""All reasons for a clock below what the load asks for."""


LIBRARY = "libnvidia-ml.so.1"
_SM, _MEMORY, _SENSOR = 1, 2, 0
"""NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU."""


_PROCESSES = "nvmlDeviceGetComputeRunningProcesses_v3"
_MORE_PROCESSES = 8
"""Room for those that start between the two questions."""


class _ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t of driver 510 and later."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )
    pid: int


class GpuState(NamedTuple):
    """The state of a GPU at one moment."""

    sm_mhz: int
    memory_mhz: int
    temperature_c: int
    reasons: int

    @property
    def throttled(self) -> str | None:
        """Why the clocks are reduced; None if they are not."""
        return next((word for bit, word in SLOWED.items() if self.reasons & bit), None)


class NvmlDevice(NamedTuple):
    """One GPU. Every answer is None if the driver does not have it."""

    library: ctypes.CDLL
    handle: ctypes.c_void_p

    def busy_share(self) -> float | None:
        """Share of the driver's last sampling period (1/6 s to 1 s) in which a kernel ran."""
        rates = (ctypes.c_uint * 2)()  # nvmlUtilization_t: gpu, memory; percent
        return rates[0] / 100 if self._tells("nvmlDeviceGetUtilizationRates", ctypes.byref(rates)) else None

    def sm_mhz(self) -> int | None:
        """Clock of the multiprocessors, MHz."""
        return self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), _SM)

    def memory_mhz(self) -> int | None:
        """Clock of the memory, MHz."""
        return self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), _MEMORY)

    def temperature_c(self) -> int | None:
        """Temperature of the chip, °C."""
        return self._number("nvmlDeviceGetTemperature", ctypes.c_uint(), _SENSOR)

    def reasons(self) -> int | None:
        """Bits of nvmlClocksEventReasons. Driver 535 renamed the function, so both names are tried."""
        new = self._number("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong())
        return self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong()) if new is None else new

    def energy_j(self) -> float | None:
        """Energy since the driver was loaded, J; from Volta on."""
        millijoules = self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong())
        return None if millijoules is None else millijoules / 1e3

    def power_w(self) -> float | None:
        """Power now or over the last second, W, depending on the generation."""
        milliwatts = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint())
        return None if milliwatts is None else milliwatts / 1e3

    def used_mib(self) -> int | None:
        """Memory in use by all processes and the driver, MiB."""
        return self._memory_mib(2)

    def free_mib(self) -> int | None:
        """Memory that nobody uses, MiB."""
        return self._memory_mib(1)

    def pids(self) -> frozenset[int] | None:
        """Processes that compute on it. In a container the driver may tell the host's numbers, or none at all."""
        count = ctypes.c_uint(0)
        # It answers "insufficient size" with the number that there are, unless there is none.
        if self._tells(_PROCESSES, ctypes.byref(count), None):
            return frozenset()
        count = ctypes.c_uint(count.value + _MORE_PROCESSES)
        found = (_ProcessInfo * count.value)()
        told = self._tells(_PROCESSES, ctypes.byref(count), found)
        return frozenset(one.pid for one in found[: count.value]) if told else None

    def state(self) -> GpuState | None:
        """Clocks, temperature and throttling now."""
        sm, memory, celsius, reasons = self.sm_mhz(), self.memory_mhz(), self.temperature_c(), self.reasons()
        if sm is None or memory is None or celsius is None or reasons is None:
            return None
        return GpuState(sm, memory, celsius, reasons)

    def _memory_mib(self, place: int) -> int | None:
        sizes = (ctypes.c_ulonglong * 3)()  # nvmlMemory_t: total, free, used; bytes
        return sizes[place] // 2**20 if self._tells("nvmlDeviceGetMemoryInfo", ctypes.byref(sizes)) else None

    def _number(self, function: str, into: ctypes.c_uint | ctypes.c_ulonglong, *which: int) -> int | None:
        return into.value if self._tells(function, *which, ctypes.byref(into)) else None

    def _tells(self, function: str, *arguments: object) -> bool:
        try:
            call = getattr(self.library, function)
        except AttributeError:  # a driver that is older or newer than the function
            return False
        return bool(call(self.handle, *arguments) == 0)


class Nvml(NamedTuple):
    """The loaded library."""

    library: ctypes.CDLL

    def names(self) -> tuple[str, ...]:
        """The numbers of all GPUs, in PCI order."""
        count = ctypes.c_uint()
        self.library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return tuple(map(str, range(count.value)))

    def device(self, name: str) -> NvmlDevice | None:
        """A GPU by number or uuid (`GPU-…`, `MIG-…`); None if there is none."""
        handle = ctypes.c_void_p()
        if name.isdecimal():
            failed = self.library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(handle))
        else:
            failed = self.library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
        return None if failed else NvmlDevice(self.library, handle)


@functools.cache
def open_nvml(library: str = LIBRARY) -> Nvml | None:
    """Load NVML once; None without a driver, or if it does not answer."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return None
    return None if nvml.nvmlInit_v2() else Nvml(nvml)


def read_state(uuid: str, library: str = LIBRARY) -> GpuState | None:
    """The state of the GPU with this uuid (`GPU-…`); None without NVML, or if it does not answer."""
    nvml = open_nvml(library)
    device = None if nvml is None else nvml.device(uuid)
    return None if device is None else device.state()
