"""How long prompts and answers are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dsabench.errors import InputError
from dsabench.load.datasets.protocol import Lengths

if TYPE_CHECKING:
    from dsabench.model.workload import Workload


def draw_lengths(workload: Workload, count: int, rng: np.random.Generator) -> tuple[Lengths, ...]:
    """Uniform on [max(int(length × range_ratio), 1), length], inputs first, then outputs, as bench_serving draws."""

    def uniform(longest: int | None) -> list[int]:
        if longest is None:
            raise InputError(f"workload {workload.name}: dataset {workload.dataset} needs input_len and output_len")
        shortest = max(int(longest * workload.range_ratio), 1)
        return [int(n) for n in rng.integers(shortest, longest + 1, size=count)]

    return tuple(map(Lengths, uniform(workload.input_len), uniform(workload.output_len)))
