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


_WORTH_JOINING = 1.1
"""A cut into more parts has to be so much faster by its rounds alone. With 256 sequences of 128 heads 16 parts save 1.5 % of the
rounds, and their 2 GB of unjoined results made a step take 2.1 (fp8) to 2.4 times (bf16) as long (results/h200/rank-kernels)."""


def parts_for(tokens: int, heads: int, k: int, processors: int) -> int:
    """Parts of a selection, so that the processors are busy for about the shortest time; none shorter than 128 rows.

    The time is that of the rounds in which programs run, each as long as one part. Of those within a tenth of the shortest the
    fewest parts, as the rest has to be joined. One program fills a processor where blocks have 64 heads, two where they are smaller.
    """
    cut = blocking_for(heads)
    programs = tokens * -(-heads // cut.heads)
    places = processors if cut.heads == 64 else 2 * processors
    choices = [parts for parts in (1, 2, 4, 8, 16) if parts == 1 or k // parts >= 128]
    rounds = {parts: -(-programs * parts // places) / parts for parts in choices}
    return next(parts for parts in choices if rounds[parts] <= _WORTH_JOINING * min(rounds.values()))
