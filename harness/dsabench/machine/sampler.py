"""Sample cores and GPUs during a load, in a separate process if there are GPUs.

It is not a thread of the load generator, because a second thread would make every socket read take locks. The
process ends when its standard input closes, so it cannot outlive the one that started it. Imports neither numpy nor
pydantic.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import IO, TYPE_CHECKING, Self

from dsabench.machine.cpu_use import read_cpu_time, read_pressure_s

if TYPE_CHECKING:
    from dsabench.machine.nvml import NvmlDevice


AT_S, USED_S, STOLEN_S, ALL_S, PRESSURE_S = range(5)
"""Columns: the time, the cores' CPU time as in `CpuTime`, and the machine's CPU pressure. All of them only grow."""
CPU_COLUMNS = 5
BUSY_SHARE, SM_MHZ, TEMPERATURE_C, REASONS, FREE_MIB, ENERGY_J, POWER_W = range(7)
"""Columns of each GPU, after those of the CPU."""
GPU_COLUMNS = 7


class MachineReader:
    """Reads the cores and GPUs. NaN stands for what the machine does not report."""

    def __init__(self, cores: Sequence[int], gpus: Sequence[str] = (), library: str | None = None) -> None:
        """`gpus` are numbers or uuids; `library` is the file of NVML, None takes the default one."""
        self._cores = cores
        self._gpus: list[NvmlDevice | None] = []
        if gpus:
            from dsabench.machine.nvml import LIBRARY, open_nvml  # noqa: PLC0415  (see above)

            nvml = open_nvml(library or LIBRARY)
            self._gpus = [None if nvml is None else nvml.device(name) for name in gpus]

    def look(self) -> array[float]:
        """Read every column once."""
        used_s, stolen_s, all_s = read_cpu_time(self._cores)
        row = array("d", (perf_counter(), used_s, stolen_s, all_s, _number(read_pressure_s())))
        for gpu in self._gpus:
            row.extend(_look_at(gpu))
        return row


def _look_at(gpu: NvmlDevice | None) -> tuple[float, ...]:
    if gpu is None:
        return (math.nan,) * GPU_COLUMNS
    energy_j = gpu.energy_j()
    told = (
        *(gpu.busy_share(), gpu.sm_mhz(), gpu.temperature_c(), gpu.reasons(), gpu.free_mib(), energy_j),
        gpu.power_w()
        if energy_j is None
        else None,  # power follows from energy, and each question to the driver costs up to 1 ms
    )
    return tuple(map(_number, told))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


_PROGRAM = "import sys; sys.path[:] = sys.argv[3:]; from dsabench.machine.sampler import main; main(int(sys.argv[1]), sys.argv[2])"
_PASSED = {"PATH", "TMPDIR", "LD_LIBRARY_PATH", "LANG"}
_READY_S = 10.0
_END_S = 5.0


class MachineSampler:
    """The sampler of one load: the CPU before and after it, the GPUs all the time by a separate process."""

    def __init__(self, cores: Sequence[int] = (), gpus: Sequence[str] = (), library: str | None = None) -> None:
        """Empty `cores` are all cores of this process; `gpus` and `library` as in `MachineReader`."""
        self.cores = tuple(cores) or tuple(sorted(os.sched_getaffinity(0)))
        self.gpus = tuple(gpus)
        self.fault: str | None = None
        """Why there are no samples; None if there are."""
        self.rows: array[float] = array("d")
        """The samples, one `MachineReader.look` after another."""
        self._library = library
        self._machine: MachineReader | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._file: IO[bytes] | None = None

    def begin(self) -> None:
        """Start sampling. Without NVML only the CPU is sampled."""
        if self.gpus and not _has_nvml(self._library):
            self.gpus = ()
        if not self.gpus:
            self._machine = MachineReader(self.cores)
            self.rows.extend(self._machine.look())
            return
        self._file = os.fdopen(os.memfd_create("dsabench-observer"), "rb")
        orders = json.dumps({"cores": self.cores, "gpus": self.gpus, "library": self._library})
        fd = self._file.fileno()
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, str(fd), orders, *filter(None, sys.path)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(fd,),
                env={name: value for name, value in os.environ.items() if name in _PASSED},
            )  # fmt: skip
        except OSError as error:
            self.fault = f"no process could be started: {error.strerror}"

    def wait(self) -> None:
        """Return when the first sample was taken."""
        if self._child is None or self._child.stdout is None:
            return
        answer = select.poll()
        answer.register(self._child.stdout, select.POLLIN)
        if not answer.poll(_READY_S * 1e3):
            self.fault = f"the driver did not answer within {_READY_S:.0f} s"

    def end(self) -> None:
        """Take the last sample."""
        if self._machine is not None:
            self.rows.extend(self._machine.look())
        if self._child is not None:
            self._end(self._child)
        if self._file is not None:
            self._file.seek(0)
            seen = self._file.read()
            self._file.close()
            whole = len(seen) - len(seen) % self._row_bytes  # a killed process may have written half a row
            self.rows.frombytes(seen[:whole])

    @property
    def _row_bytes(self) -> int:
        return (CPU_COLUMNS + GPU_COLUMNS * len(self.gpus)) * self.rows.itemsize

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        try:
            _, errors = child.communicate(timeout=_END_S)  # this closes its standard input
        except subprocess.TimeoutExpired:
            child.kill()
            with suppress(subprocess.TimeoutExpired):  # stuck in the driver, where no signal reaches it
                child.communicate(timeout=_END_S)
            self.fault = self.fault or "the driver does not answer any more"
            return
        if child.returncode != 0:
            last = errors.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
            self.fault = f"the process that looks ended: {last[0]}"

    def __enter__(self) -> Self:
        self.begin()
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _has_nvml(library: str | None) -> bool:
    from dsabench.machine.nvml import LIBRARY, open_nvml  # noqa: PLC0415  (only where there are GPUs)

    return open_nvml(library or LIBRARY) is not None


EVERY_S = 0.2
COST_MAX = 0.05
"""Share of a core that sampling may use. If a sample takes long (many GPUs, a slow driver), the next one waits longer.
"""
_NICENESS = 10
"""It gives way to the process that shares its core. A late sample does no harm, because it has its own time."""


def main(fd: int, orders: str) -> None:
    """Sample until standard input ends. Reports the first sample on standard output.

    `fd` is the output file, `orders` the arguments of `MachineReader` as JSON.
    """
    # A Ctrl-C reaches the whole process group, but the parent stops this process by closing its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    machine = MachineReader(**json.loads(orders))
    cost_s = _note(machine, fd)
    os.write(1, b"R")
    while not select.select([0], [], [], max(EVERY_S - cost_s, cost_s / COST_MAX))[0]:
        cost_s = _note(machine, fd)
    _note(machine, fd)


def _note(machine: MachineReader, fd: int) -> float:
    """Write one sample; return the seconds that it took."""
    begun_s = perf_counter()
    os.write(fd, machine.look().tobytes())
    return perf_counter() - begun_s
