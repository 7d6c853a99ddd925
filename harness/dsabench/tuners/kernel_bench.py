"""Kernel times in a folder: what a worker measures is recorded as it comes, and what is recorded is not measured again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dsabench
from dsabench.errors import TrialFault
from dsabench.kernelbench.conductor import WorkerLine
from dsabench.kernelbench.records import KernelMeasurement, append, latest, read
from dsabench.kernelbench.request import KernelBenchRequest, KernelPoint
from dsabench.kernelbench.table import write_table
from dsabench.machine.environment import collect_environment
from dsabench.model.environment import Environment, RuntimeIdentity
from dsabench.reference.identify import hash_of

_SETTLED = ("ok", "wrong", "unavailable")
"""What is not measured again; what did not come to rest, raised or crashed is."""


class KernelBench:
    """The journal of one run: `known` and `hear` go to `run_bench`."""

    def __init__(self, request: KernelBenchRequest, results: Path, *, again: bool = False) -> None:
        self.measured = self.left = 0
        self.settled: dict[KernelPoint, KernelMeasurement] = {}
        """What was recorded before this run, where the worker runs."""
        self._request, self._results, self._again = request, results, again
        self._environment: Environment | None = None

    async def known(self, device: WorkerLine) -> tuple[KernelPoint, ...]:
        """The points that are recorded already of where the worker runs."""
        self._environment = await environment_of(device)
        if not self._again:
            found = latest(read(self._results), self._environment.fingerprint)
            wanted_s = self._request.limits.sustain_s
            self.settled = {point: m for point, m in found.items() if _is_settled(m, wanted_s)}
        return tuple(self.settled)

    def hear(self, said: WorkerLine) -> None:
        """Record a point, and note how many are left.

        Raises:
            StoreError: disk full or read-only.

        """
        if said["is"] == "point":
            append(self._results, self._measurement(said))
            self.measured += 1
        elif said["is"] == "left":
            self.left = int(str(said["points"]))

    def _measurement(self, said: WorkerLine) -> KernelMeasurement:
        where: dict[str, Any] = {name: value for name, value in said.items() if name != "is"}
        if self._environment is None:
            raise TrialFault("exited", "the worker did not say where it runs", stage="load")
        now, request = datetime.now(UTC), self._request
        return KernelMeasurement(
            **where, seed=request.seed, threads=request.threads, started_at=now, environment=self._environment
        )

    def tabulate(self) -> Path | None:
        """Make the table of all that is recorded; None where nothing is."""
        return write_table(self._results, read(self._results)) if self.measured or self.settled else None


def _is_settled(m: KernelMeasurement, wanted_s: float) -> bool:
    """A point that ran back to back for a shorter time than asked for, or not at all, is measured again."""
    return m.status in _SETTLED and not (m.status == "ok" and (m.sustain_s or 0.0) < wanted_s)


async def environment_of(device: WorkerLine) -> Environment:
    """Hardware, torch and kernel packages of the worker, and the code of the adapters."""
    package = Path(dsabench.__file__).parent
    kernels = package.parent.parent / "kernels" / "dsakernels"
    code = [folder for folder in (kernels, package.parent / "dsakernels", package / "kernelbench") if folder.is_dir()]
    return await collect_environment(
        RuntimeIdentity(
            kind="reference",
            version=dsabench.__version__,
            wheel_hash=hash_of(code),
            torch=str(device["torch"]),
            python=str(device["python"]),
            packages={str(k): str(v) for k, v in dict(device["packages"]).items()},  # type: ignore[call-overload]
        )
    )
