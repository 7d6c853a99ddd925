"""Arrivals that were recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsabench.load.arrivals.protocol import Times


@dataclass(frozen=True, slots=True)
class FollowTrace:
    """The times that the dataset gives, seconds after the first."""

    due_s: tuple[float, ...]

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """The first `count` of them; nothing is drawn."""
        del rng
        return np.array(self.due_s[:count], dtype=np.float64)
