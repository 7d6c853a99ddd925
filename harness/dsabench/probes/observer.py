"""Looks at the machine from before a load until after it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Self

from dsabench.probes.machine import CPU_COLUMNS, GPU_COLUMNS, Machine

_PROGRAM = "import sys; sys.path[:] = sys.argv[3:]; from dsabench.probes.observer_process import main; main(int(sys.argv[1]), sys.argv[2])"
_PASSED = {"PATH", "TMPDIR", "LD_LIBRARY_PATH", "LANG"}
_READY_S = 10.0
_END_S = 5.0


class Observer:
    """Of one load. Counters of the CPU are read before and after it; GPUs are looked at all the while, by a process."""

    def __init__(self, cores: Sequence[int] = (), gpus: Sequence[str] = (), library: str | None = None) -> None:
        """Empty `cores` are all that this process may use; `gpus` and `library` as `Machine` takes them."""
        self.cores = tuple(cores) or tuple(sorted(os.sched_getaffinity(0)))
        self.gpus = tuple(gpus)
        self.fault: str | None = None
        """Why there is nothing to tell, where that is so."""
        self.rows: array[float] = array("d")
        """What was seen, `Machine.look` after `Machine.look`."""
        self._library = library
        self._machine: Machine | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._file: IO[bytes] | None = None

    def begin(self) -> None:
        """Start. Without NVML there is nothing to ask about GPUs."""
        if self.gpus and not _has_nvml(self._library):
            self.gpus = ()
        if not self.gpus:
            self._machine = Machine(self.cores)
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
        """Return when the first look was taken."""
        if self._child is None or self._child.stdout is None:
            return
        answer = select.poll()
        answer.register(self._child.stdout, select.POLLIN)
        if not answer.poll(_READY_S * 1e3):
            self.fault = f"the driver did not answer within {_READY_S:.0f} s"

    def end(self) -> None:
        """Take the last look."""
        if self._machine is not None:
            self.rows.extend(self._machine.look())
        if self._child is not None:
            self._end(self._child)
        if self._file is not None:
            self._file.seek(0)
            seen = self._file.read()
            self._file.close()
            whole = len(seen) - len(seen) % self._row_bytes  # it may have been killed in the middle of a row
            self.rows.frombytes(seen[:whole])

    @property
    def _row_bytes(self) -> int:
        return (CPU_COLUMNS + GPU_COLUMNS * len(self.gpus)) * self.rows.itemsize

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        try:
            _, errors = child.communicate(timeout=_END_S)  # which closes its input
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
    from dsabench.probes.nvml import LIBRARY, open_nvml  # noqa: PLC0415  (only where there are GPUs)

    return open_nvml(library or LIBRARY) is not None
