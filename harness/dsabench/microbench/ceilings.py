"""What the machine can do at most, measured in the run that the ceilings are held against."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from dsabench.microbench.timers import timer_for

_SAMPLES = 9
_LIMIT_S = 1.0
"""Of one ceiling: a CPU without bfloat16 instructions takes seconds for one product."""
_LINK_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most bytes a second of a copy (read and write counted), a kernel that writes what it reads, and one that only
    reads; bfloat16 products of large matrices. Each the best of 9 samples, or of those that fit in a second.

    The driver's copy alone is no ceiling: on an H200 it moves 2.76 TB/s where attention kernels read 4.16.
    """

    tb_s: float
    tflop_s: float
    link_gb_s: float | None = None
    """Of a copy from pinned host memory to the GPU; None where there is none, or nothing asked for crosses that link."""


def measure_ceilings(device: str, *, link: bool = False) -> Ceilings:
    """Measure them, in a few seconds at most. `link`: the host's link as well, if the device has one."""
    size, side = (1 << 30, 8192) if device == "cuda" else (1 << 26, 512)
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    copied_us = _best(device, lambda: target.copy_(source))
    written_us = _best(device, lambda: torch.neg(source, out=target))
    read_us = _best(device, source.amax)
    a, b = (torch.randn(side, side, device=device).to(torch.bfloat16) for _ in range(2))
    multiplied_us = _best(device, lambda: a @ b)
    moved = max(2 * size / copied_us, 2 * size / written_us, size / read_us)
    link_gb_s = _link_gb_s() if link and device == "cuda" else None
    return Ceilings(tb_s=moved / 1e6, tflop_s=2 * side**3 / multiplied_us / 1e6, link_gb_s=link_gb_s)


def _link_gb_s() -> float:
    """By the copy engine, 256 MiB at once: what a kernel reads there row by row comes no faster."""
    host = torch.empty(_LINK_BYTES, dtype=torch.uint8, pin_memory=True).fill_(1)
    target = torch.empty_like(host, device="cuda")
    copied_us = _best("cuda", lambda: target.copy_(host, non_blocking=True), captures=False)
    return _LINK_BYTES / copied_us / 1e3


def _best(device: str, call: object, *, captures: bool = True) -> float:
    assert callable(call)
    timer = timer_for(device, [call], captures=captures)
    started_s = time.monotonic()
    best = timer.sample()
    for _ in range(_SAMPLES - 1):
        if time.monotonic() - started_s > _LIMIT_S:
            break
        best = min(best, timer.sample())
    return best
