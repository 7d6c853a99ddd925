"""Stop comparing as soon as the verdict stands: a look after every pair of boots, and what a look may cost.

The chance of a false verdict is shared out among the looks (alpha spending, in parts that add up). Each look judges at its own part, so
that the whole keeps the chance however the looks depend on each other, with few boots and heavy tails too. The last look has most of it:
stopping early costs little power. Intervals are those of the look that ended it, so they hold for all looks together.
"""

from __future__ import annotations

import math

from dsabench.model.verdict import BOOTS_MIN
from dsabench.stats.compare import LogRatioEstimate
from dsabench.stats.distributions import t_above, t_critical

_LAST_SHARE = 0.8
"""Of the chance, for the last look; the looks before it share the rest, a later one more."""
_HOPELESS = 0.05
"""Chance of a decision by the last look below which more boots are not worth their time."""


def look_levels(pairs: int, alpha: float) -> dict[int, float]:
    """Number of pairs → the level of the look at it, of a comparison planned with `pairs`. They add up to `alpha`."""
    early = range(BOOTS_MIN, pairs)
    if not early:
        return {pairs: alpha}
    weights = {pair: pair - BOOTS_MIN + 1 for pair in early}
    shared = (1.0 - _LAST_SHARE) * alpha / sum(weights.values())
    return {pair: weight * shared for pair, weight in weights.items()} | {pairs: _LAST_SHARE * alpha}


def is_hopeless(so_far: LogRatioEstimate, had: int, planned: int, *, alpha: float, equivalence: float) -> bool:
    """Whether the rest of the planned pairs would hardly decide it, judging by those so far.

    The predictive distribution of the final mean: the mean of the pairs to come is t distributed around the present one.
    Stopping for this makes no false verdict.

    Args:
        so_far: of `had` pairs.
        had: pairs so far.
        planned: pairs in all.
        alpha: level of the last look.
        equivalence: log ratio that does not matter.

    """
    difference, spread = so_far.difference, so_far.spread
    left = planned - had
    if left <= 0 or had < 2 or spread == 0.0:
        return False
    half_width = t_critical(alpha / 2, planned - 1) * spread / math.sqrt(planned)
    moves = left / planned * spread * math.sqrt(1.0 / left + 1.0 / had)

    def above(limit: float) -> float:
        return t_above((limit - difference) / moves, had - 1.0)

    decided = above(half_width) + 1.0 - above(-half_width)
    if half_width < equivalence:
        decided += above(half_width - equivalence) - above(equivalence - half_width)
    return decided < _HOPELESS
