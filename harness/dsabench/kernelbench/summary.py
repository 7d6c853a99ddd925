"""Median, MAD and interval of the times of one point, and whether they may be reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class TimingSummary:
    """Microseconds of one call. `mad_us`: median absolute deviation from the median, not scaled."""

    median_us: float
    mad_us: float
    low_us: float
    high_us: float
    n: int

    @property
    def half_width(self) -> float:
        """Half of the median's 95 % interval, as a share of the median."""
        return (self.high_us - self.low_us) / 2 / self.median_us


SAME = 0.01
"""Medians nearer than this are not told apart, whatever their intervals: clocks and heat move between two points."""


def are_apart(a: TimingSummary, b: TimingSummary) -> bool:
    """Whether two candidates differ: their 95 % intervals do not touch and their medians are more than 1 % apart."""
    touch = a.low_us <= b.high_us and b.low_us <= a.high_us
    return not touch and abs(a.median_us - b.median_us) > SAME * min(a.median_us, b.median_us)


def summarise(samples: Sequence[float]) -> TimingSummary:
    """Of at least 6 samples in microseconds: fewer have no 95 % interval of the median."""
    ordered = sorted(samples)
    low, high = median_ranks(len(ordered))
    middle = median(ordered)
    return TimingSummary(
        median_us=middle,
        mad_us=median(abs(sample - middle) for sample in ordered),
        low_us=ordered[low],
        high_us=ordered[high],
        n=len(ordered),
    )


def median_ranks(n: int) -> tuple[int, int]:
    """Ranks (from 0) of the order statistics around the median with at least 95 % coverage, whatever the law.

    Raises:
        ValueError: fewer than 6 samples have none.

    """
    below = 0.0
    for rank in range(n // 2):
        below += math.comb(n, rank) / 2**n
        if below > 0.025:
            if rank == 0:
                break
            return rank - 1, n - rank
    raise ValueError(f"{n} samples have no 95 % interval of the median")


def instability(samples: Sequence[float], half_width: float) -> str | None:
    """Why these samples give no number, None where they do: too wide an interval, or a median that moved."""
    times = summarise(samples)
    if times.half_width > half_width:
        return f"the median is known to ±{times.half_width:.1%} after {times.n} samples, wanted ±{half_width:.1%}"
    first, second = median(samples[: len(samples) // 2]), median(samples[len(samples) // 2 :])
    drift = abs(second - first) / times.median_us
    if drift > 2 * half_width:
        return f"the median moved by {drift:.1%} between the first and the second half of {times.n} samples"
    return None
