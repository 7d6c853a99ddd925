"""Interval of a share."""

from __future__ import annotations

import math
from statistics import NormalDist

from dsabench.stats.bootstrap import Interval


def wilson(hits: float, n: int, confidence: float = 0.95) -> Interval | None:
    """Wilson's score interval (1927) of hits/n; None of nothing.

    It stays inside [0, 1] and has a width at 0 and n hits, where the textbook interval has none.
    """
    if n == 0:
        return None
    z = NormalDist().inv_cdf((1.0 + confidence) / 2)
    share = hits / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return Interval(max(0.0, centre - half), min(1.0, centre + half))
