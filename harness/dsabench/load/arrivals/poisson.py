"""Independent arrivals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsabench.load.arrivals.protocol import Times


@dataclass(frozen=True, slots=True)
class Poisson:
    """A Poisson process: exponential distances of mean 1 / rate, drawn after each request as in bench_serving."""

    rate_req_s: float

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """Partial sums of `count - 1` exponential distances."""
        times = np.zeros(count, dtype=np.float64)
        np.cumsum(rng.exponential(1.0 / self.rate_req_s, size=max(count - 1, 0)), out=times[1:])
        return times
