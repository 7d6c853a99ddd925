"""The false-alarm rate of the two-look check on generated rounds, in far more families than boots can give.

    python tests/power_study/simulate.py --families 2000000

Two looks in pairs: 5 rounds, then as many as `boots_needed` asks for at the careful spread, the first 5 among them; each look at half of
the level. A round's difference is normal; with `--drift` its two boots shared a random walk, which cancels.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy import stats

from dsabench.reporting.regression import POWER
from dsabench.stats.power import BOOTS_MAX, boots_needed, careful_spread

FIRST = 5


def alarms(families: int, spread: float, level: float, effect: float, rng: np.random.Generator) -> tuple[int, float]:
    """(families with an alarm, mean boots a side); `spread` is that of a round's difference."""
    first = rng.normal(0.0, spread, (families, FIRST))
    mean, deviation = first.mean(1), first.std(1, ddof=1)
    hit = np.abs(mean) * math.sqrt(FIRST) / deviation > stats.t.isf(level / 4, FIRST - 1)
    steps = np.unique(np.round(np.log(deviation), 2))
    wanted = {
        step: boots_needed(careful_spread(math.exp(step), FIRST - 1), math.log1p(effect), paired=True, alpha=level / 2, power=POWER, pilot=FIRST)
        for step in steps
    }  # fmt: skip
    sizes = np.array([wanted[step] or BOOTS_MAX for step in np.round(np.log(deviation), 2)])
    more = np.maximum(sizes - FIRST, 0)
    again = more > 0
    added = np.where(again, rng.normal(0.0, 1.0, families) * spread / np.sqrt(np.maximum(more, 1)), 0.0)
    squares = np.where(more > 1, rng.chisquare(np.maximum(more - 1, 1)) * spread**2, 0.0)
    total = FIRST + more
    df = np.maximum(more - 1, 1)
    t = np.abs(FIRST * mean + more * added) / np.sqrt(total) / np.sqrt(np.maximum(squares, 1e-300) / df)
    hit |= (more > 1) & (t > stats.t.isf(level / 4, df))
    return int(hit.sum()), float(total.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", type=int, default=2_000_000)
    parser.add_argument("--level", type=float, default=0.001)
    given = parser.parse_args()
    rng = np.random.default_rng(5)
    for spread in (0.01, 0.02, 0.03, 0.05):
        found, boots = alarms(given.families, spread, given.level, 0.05, rng)
        print(
            f"spread of a round {spread:.0%}: {found} of {given.families:,} ({found / given.families:.6f}), level {given.level}, {boots:.0f} boots a side"
        )


if __name__ == "__main__":
    main()
