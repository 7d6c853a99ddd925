"""Everything at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsabench.load.arrivals.protocol import Times


@dataclass(frozen=True, slots=True)
class Immediate:
    """An infinite rate: all requests are due at the start."""

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """Zeros; nothing is drawn."""
        del rng
        return np.zeros(count, dtype=np.float64)
