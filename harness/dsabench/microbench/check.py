"""Is a candidate right: its output against the reference in float64, on random query rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from dsakernels.candidates.candidate import Call, Candidate
from dsakernels.operator import Dtype, Operator, relative_error
from dsakernels.shape import Shape

ROWS = 256
"""Query rows that a verdict rests on, at least."""
_BLOCK = 64


@dataclass(frozen=True, slots=True)
class Verdict:
    """`rel_err` is None where an output is not finite."""

    rel_err: float | None
    rows: int
    tolerance: float

    @property
    def is_right(self) -> bool:
        """Within the tolerance."""
        return self.rel_err is not None and self.rel_err <= self.tolerance


def check(operator: Operator, candidate: Candidate, shape: Shape, dtype: Dtype, device: str, *, seed: int) -> Verdict:
    """Fresh inputs as often as it takes for `ROWS` rows."""
    rows, worst, draw = 0, 0.0, 0
    while rows < ROWS:
        generator = torch.Generator(device).manual_seed(seed + draw)
        inputs = operator.make(shape, dtype, generator)
        count = min(ROWS, operator.rows(shape))
        error = error_of(operator, inputs, candidate.bind(inputs), shape, count)
        if not math.isfinite(error):
            return Verdict(None, rows + count, operator.tolerance[dtype])
        rows, worst, draw = rows + count, max(worst, error), draw + 1
    return Verdict(worst, rows, operator.tolerance[dtype])


def error_of(operator: Operator, inputs: Any, call: Call, shape: Shape, count: int) -> float:
    """Largest relative error of `count` random rows.

    The call runs twice. The first output is overwritten with what is never right and given back to the allocator, so
    that a kernel which leaves rows unwritten returns that, and not the right answer of an earlier call.
    """
    poison(call())
    output = call()
    generator = torch.Generator(output.device).manual_seed(count)
    rows = torch.randperm(operator.rows(shape), generator=generator, device=output.device)[:count]
    errors = [
        relative_error(operator.pick(inputs, output, part), operator.expected(inputs, part))
        for part in (rows[first : first + _BLOCK] for first in range(0, len(rows), _BLOCK))
    ]
    return max(errors) if all(map(math.isfinite, errors)) else math.nan


def poison(output: torch.Tensor) -> None:
    """Overwrite an output: NaN in floats (byte 0xFF is NaN in e4m3 too), -7 in integers."""
    if output.dtype.is_floating_point and output.element_size() > 1:
        output.fill_(math.nan)
    elif output.element_size() == 1:
        output.view(torch.uint8).fill_(255)
    else:
        output.fill_(-7)
