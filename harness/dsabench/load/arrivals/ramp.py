"""A rate that grows, or falls, to find where a server gives way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsabench.load.arrivals.protocol import Times


@dataclass(frozen=True, slots=True)
class Ramp:
    """The rate goes evenly from one value to another over the run; distances follow it without chance."""

    from_req_s: float
    to_req_s: float

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """The k-th request comes when the integral of the rate reaches k; nothing is drawn.

        With rate r0 + a·t, k = r0·t + a·t²/2, whose root is written so that it also holds for a = 0.
        """
        del rng
        k = np.arange(count, dtype=np.float64)
        length_s = 2.0 * max(count - 1, 1) / (self.from_req_s + self.to_req_s)
        slope = (self.to_req_s - self.from_req_s) / length_s
        return 2.0 * k / (self.from_req_s + np.sqrt(np.maximum(self.from_req_s**2 + 2.0 * slope * k, 0.0)))
