"""One look at the cores and GPUs of a measurement, as a row of numbers. Imports neither numpy nor pydantic: a process runs it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from dsabench.probes.cpu_time import read_cpu_time, read_pressure_s

if TYPE_CHECKING:  # where there is no GPU to look at, a load test from the command line pays nothing for asking
    from dsabench.probes.nvml import Device

AT_S, USED_S, STOLEN_S, ALL_S, PRESSURE_S = range(5)
"""Columns: the time, the cores' CPU time as `CpuTime` has it, and the machine's CPU pressure. All of them only grow."""
CPU_COLUMNS = 5
BUSY_SHARE, SM_MHZ, TEMPERATURE_C, REASONS, ENERGY_J, POWER_W = range(6)
"""Columns of each GPU, behind those of the CPU."""
GPU_COLUMNS = 6


class Machine:
    """The cores and GPUs that are looked at. NaN stands for what the machine does not tell."""

    def __init__(self, cores: Sequence[int], gpus: Sequence[str] = (), library: str | None = None) -> None:
        """`gpus` are numbers or uuids; `library` is NVML, found by its own name where none is given."""
        self._cores = cores
        self._gpus: list[Device | None] = []
        if gpus:
            from dsabench.probes.nvml import LIBRARY, open_nvml  # noqa: PLC0415  (see above)

            nvml = open_nvml(library or LIBRARY)
            self._gpus = [None if nvml is None else nvml.device(name) for name in gpus]

    def look(self) -> array[float]:
        """Every column once."""
        used_s, stolen_s, all_s = read_cpu_time(self._cores)
        row = array("d", (perf_counter(), used_s, stolen_s, all_s, _number(read_pressure_s())))
        for gpu in self._gpus:
            row.extend(_look_at(gpu))
        return row


def _look_at(gpu: Device | None) -> tuple[float, ...]:
    if gpu is None:
        return (math.nan,) * GPU_COLUMNS
    energy_j = gpu.energy_j()
    told = (
        *(gpu.busy_share(), gpu.sm_mhz(), gpu.temperature_c(), gpu.reasons(), energy_j),
        gpu.power_w()
        if energy_j is None
        else None,  # the energy tells the power, and a question costs up to a millisecond
    )
    return tuple(map(_number, told))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
