"""What the machine can do at most, measured in the run that the ceilings are held against."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsabench.microbench.timers import timer_for

_SAMPLES = 9


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Bandwidth of a copy (read and write counted) and bfloat16 products of large matrices; the best of 9 samples."""

    tb_s: float
    tflop_s: float


def measure_ceilings(device: str) -> Ceilings:
    """Takes about a second."""
    size, side = (1 << 30, 8192) if device == "cuda" else (1 << 26, 1024)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied_us = _best(device, lambda: target.copy_(source))
    a, b = (torch.randn(side, side, device=device).to(torch.bfloat16) for _ in range(2))
    multiplied_us = _best(device, lambda: a @ b)
    return Ceilings(tb_s=2 * size / copied_us / 1e6, tflop_s=2 * side**3 / multiplied_us / 1e6)


def _best(device: str, call: object) -> float:
    assert callable(call)
    timer = timer_for(device, [call])
    return min(timer.sample() for _ in range(_SAMPLES))
