"""What every spacing of arrivals offers."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]


class Arrivals(Protocol):
    """A spacing of requests in time."""

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """Seconds after the start at which `count` requests are due: ascending, the first at 0.0."""
