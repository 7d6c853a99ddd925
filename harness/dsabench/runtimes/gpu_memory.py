"""GPU memory in use, and that it is back after a server: what a dead process still holds would shrink the next pool."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from dsabench.errors import TrialFault
from dsabench.machine.nvml import LIBRARY, open_nvml
from dsabench.runtimes.faults import CheckedAfter

TOLERANCE_MIB = 1024
"""More than this above what was in use before the boot is not "back"."""
_WAIT_S = 60.0
_TURN_S = 0.5
_SMI = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")

Reading = tuple[int, ...]
"""MiB in use on each GPU."""


def read_used(visible: str | None = None, library: str = LIBRARY) -> Reading | None:
    """From NVML, or where it is not found from nvidia-smi, which may know where it is; None without a GPU.

    `visible` is what `CUDA_VISIBLE_DEVICES` says to the server: what others do on the machine's other GPUs does not count.
    """
    names = tuple(name.strip() for name in (visible or "").split(",") if name.strip())
    nvml = _from_nvml(names, library)
    return _from_smi(names) if nvml is None else nvml


def _from_nvml(names: Sequence[str], library: str) -> Reading | None:
    nvml = open_nvml(library)
    if nvml is None:
        return None
    devices = [nvml.device(name) for name in names or nvml.names()]
    used = [device.used_mib() for device in devices if device is not None]
    told = [mib for mib in used if mib is not None]
    return tuple(told) if told and len(told) == len(devices) else None


def _from_smi(names: Sequence[str]) -> Reading | None:
    chosen = ("-i", ",".join(names)) if names else ()
    try:
        done = subprocess.run((*_SMI, *chosen), capture_output=True, text=True, timeout=20, check=True)
        return tuple(int(line) for line in done.stdout.split()) or None
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


@asynccontextmanager
async def memory_back(read: Callable[[], Reading | None] = read_used, wait_s: float = _WAIT_S) -> AsyncIterator[None]:
    """Around a boot: on leaving, wait until no GPU holds more than before.

    Raises:
        TrialFault: kind not_gone; what comes next would have less memory than it seems. As a note where another error
            is under way.

    """
    before = await asyncio.to_thread(read)
    async with CheckedAfter(lambda: _wait(read, before, wait_s)):
        yield


async def _wait(read: Callable[[], Reading | None], before: Reading | None, wait_s: float) -> TrialFault | None:
    if before is None:
        return None
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait_s
    while True:
        now = await asyncio.to_thread(read)
        if now is None or len(now) != len(before):
            return None
        held = {index: after - was for index, (was, after) in enumerate(zip(before, now, strict=True))}
        index, most = max(held.items(), key=lambda item: item[1])
        if most <= TOLERANCE_MIB:
            return None
        if clock() > deadline:
            return TrialFault(
                "not_gone",
                f"GPU {index} holds {most:,} MiB more than before the boot, {wait_s:.0f} s after",
                stage="stop",
            )
        await asyncio.sleep(_TURN_S)
