"""How sparse attention is cut for a GPU: heads and rows of a program, and parts of a query's selection. Imports no Triton."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Blocking:
    """How a program is cut: heads and rows of a block, warps, and stages of loads in flight."""

    heads: int
    rows: int
    warps: int
    stages: int


def blocking_for(heads: int) -> Blocking:
    """With 64 heads Hopper's warp-group products are used; 221 of its 227 KiB of shared memory are then full."""
    if heads >= 64:
        return Blocking(heads=64, rows=64, warps=8, stages=2)
    return Blocking(heads=16 if heads <= 16 else 32, rows=32, warps=4 if heads <= 16 else 8, stages=3)


_JOINED = 0.02
"""What joining one part of one head costs, in rows that a program of 64 heads goes through: 4 KiB are written and read again at 2.8 TB/s, 1.5 ns, and
a row takes 70 ns (bf16) to 90 (fp8) on an H200. So 256 sequences of 128 heads take 1.30 ms in 16 parts, 0.57 in one; 1.33 and 0.56 were measured
(results/h200/rank-kernels)."""


def parts_for(tokens: int, heads: int, k: int, processors: int) -> int:
    """Parts of a selection, so that the processors are busy for the shortest time, the join with it; none shorter than 128 rows.

    The time is that of the rounds in which programs run, each as long as one part; of equals the fewest parts. One program fills a
    processor where blocks have 64 heads, two where they are smaller.
    """
    cut = blocking_for(heads)
    programs = tokens * -(-heads // cut.heads)
    places = processors if cut.heads == 64 else 2 * processors

    def rows(parts: int) -> float:
        joined = _JOINED * tokens * heads * parts if parts > 1 else 0.0
        return -(-programs * parts // places) * k / parts + joined

    return min((parts for parts in (1, 2, 4, 8, 16) if parts == 1 or k // parts >= 128), key=rows)
