"""Equal distances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsabench.load.arrivals.protocol import Times


@dataclass(frozen=True, slots=True)
class Constant:
    """One request every 1 / rate seconds."""

    rate_req_s: float

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """0, 1/rate, 2/rate, …; nothing is drawn."""
        del rng
        return np.arange(count, dtype=np.float64) / self.rate_req_s
