"""What the machine can do at most, measured in the run that the ceilings are held against."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsabench.microbench.timers import timer_for

_SAMPLES = 9


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most bytes a second of a copy (read and write counted), a kernel that writes what it reads, and one that only
    reads; bfloat16 products of large matrices. Each the best of 9 samples.

    The driver's copy alone is no ceiling: on an H200 it moves 2.76 TB/s where attention kernels read 4.16.
    """

    tb_s: float
    tflop_s: float


def measure_ceilings(device: str) -> Ceilings:
    """Takes about a second."""
    size, side = (1 << 30, 8192) if device == "cuda" else (1 << 26, 1024)
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    copied_us = _best(device, lambda: target.copy_(source))
    written_us = _best(device, lambda: torch.neg(source, out=target))
    read_us = _best(device, source.amax)
    a, b = (torch.randn(side, side, device=device).to(torch.bfloat16) for _ in range(2))
    multiplied_us = _best(device, lambda: a @ b)
    moved = max(2 * size / copied_us, 2 * size / written_us, size / read_us)
    return Ceilings(tb_s=moved / 1e6, tflop_s=2 * side**3 / multiplied_us / 1e6)


def _best(device: str, call: object) -> float:
    assert callable(call)
    timer = timer_for(device, [call])
    return min(timer.sample() for _ in range(_SAMPLES))
