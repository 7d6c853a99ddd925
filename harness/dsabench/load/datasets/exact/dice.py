"""The two random generators that bench_serving seeds, and what it draws of both."""

from __future__ import annotations

import random
from typing import NamedTuple, Self

import numpy as np


class Dice(NamedTuple):
    """State is shared on purpose: lengths, prompts and arrival gaps come from one stream, in bench_serving's order."""

    python: random.Random
    legacy: np.random.RandomState

    @classmethod
    def of(cls, seed: int) -> Self:
        """As after `random.seed(seed)` and `np.random.seed(seed)`; 0 ≤ seed < 2**32."""
        return cls(random.Random(seed), np.random.RandomState(seed))

    def lengths(self, longest: int, range_ratio: float, count: int) -> list[int]:
        """Uniform on [max(int(longest × ratio), 1), longest] (datasets/common.py, compute_random_lens)."""
        if longest <= 0:
            return [0] * count
        drawn: list[int] = self.legacy.randint(max(int(longest * range_ratio), 1), longest + 1, size=count).tolist()
        return drawn
