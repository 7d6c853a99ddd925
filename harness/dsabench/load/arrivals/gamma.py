"""Arrivals in bursts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsabench.load.arrivals.protocol import Times


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma distributed distances of mean 1 / rate; their coefficient of variation is 1 / sqrt(burstiness).

    The parameter is that of vllm's serving benchmark: 1 is a Poisson process, below it bursts, above it more even.
    """

    rate_req_s: float
    burstiness: float = 1.0

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """Partial sums of `count - 1` distances."""
        times = np.zeros(count, dtype=np.float64)
        scale_s = 1.0 / (self.rate_req_s * self.burstiness)
        np.cumsum(rng.gamma(self.burstiness, scale_s, size=max(count - 1, 0)), out=times[1:])
        return times
