"""Parts of a machine for boots at the same time: each has its own cores and GPUs, as many as the next."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.runtimes.cores import by_physical_core


@dataclass(frozen=True, slots=True)
class Share:
    """Of a process that measures beside others. Without GPUs the machine's are left as they are."""

    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    """Their numbers in PCI order. sglang reads numbers only, no uuids."""

    def take(self) -> None:
        """Confine this process, and so every server that it starts, to the share."""
        os.sched_setaffinity(0, self.cores)
        if self.gpus:
            os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)


def split_machine(lanes: int, cores: Sequence[int], gpus: Sequence[str], gpus_each: int) -> tuple[Share, ...]:
    """Equal shares, so that what one measures is comparable with what another does; what is over stays idle.

    Raises:
        InputError: there are not enough cores or GPUs.

    """
    if lanes > len(cores):
        raise InputError(f"--lanes {lanes}: each takes a core at least, and this process may use {len(cores)}")
    if lanes * gpus_each > len(gpus):
        most = len(gpus) // gpus_each
        raise InputError(
            f"--lanes {lanes}: the largest setting takes {gpus_each} GPUs, so {lanes * gpus_each} for all of them, and "
            f"{len(gpus)} are visible here: " + (f"--lanes {most} at most" if most else "not one fits")
        )
    each, ordered = len(cores) // lanes, by_physical_core(cores)
    return tuple(
        Share(tuple(sorted(ordered[i * each : (i + 1) * each])), tuple(gpus[i * gpus_each : (i + 1) * gpus_each]))
        for i in range(lanes)
    )
