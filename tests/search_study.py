"""What strategies cost on many invented landscapes: a table for each kind.

    python tests/search_study.py                                   # 100 landscapes a kind, gp, coordinate and random: ten minutes on two cores
    python tests/search_study.py --kinds rugged --proposers gp tpe --landscapes 40

Each landscape is searched once by every strategy with the same noise, up to 45 settings. 30 % of the settings fail. Quantiles of boots
and cost count a search that never comes within 3 % of the best as endless.
"""

from __future__ import annotations

import argparse
import math
import random
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import fmean

from dsabench.kernelbench.summary import median_ranks
from dsabench.study.landscape import Landscape
from dsabench.study.proposers import PROPOSERS
from dsabench.study.replay import REGRET_AT, Replay, memory_of, search
from dsabench.study.synthetic import KINDS, generate

WITHIN, MOST, FIRST_SEED, _OTHERS = 0.03, 45, 1000, 50_000


def search_of(kind: str, memory: str, name: str, seed: int) -> Replay:
    """One search of one landscape."""
    landscape = generate(kind, seed)
    known = None if memory == "none" else memory_of(earlier_study(landscape, kind, memory, seed), landscape)
    return search(landscape, name, seed, within=WITHIN, most=MOST, memory=known)


def earlier_study(landscape: Landscape, kind: str, memory: str, seed: int) -> Landscape:
    """What a study measured before in 24 settings drawn at random: here with other loads, whose values are half as large and differ
    by 5 %, or in another landscape.
    """
    rng = random.Random(seed)
    other = landscape if memory == "alike" else generate(kind, seed + _OTHERS)
    drawn = rng.sample([one for one in other.settings if one.value is not None], 24)
    changed = tuple(
        one.model_copy(update={"value": 0.5 * (one.value or 0.0) * math.exp(rng.gauss(0.0, 0.05))}) for one in drawn
    )
    return Landscape(header=other.header, settings=changed)


def with_interval(values: list[float], show: str) -> str:
    """The median and its 95 % interval."""
    ordered = sorted(values)
    low, high = median_ranks(len(ordered))
    told = (ordered[(len(ordered) - 1) // 2], ordered[low], ordered[high])
    middle, least, most = ("never" if math.isinf(one) else format(one, show) for one in told)
    return middle if least == "never" else f"{middle} ({least} to {most})"


def row(kind: str, name: str, searches: list[Replay]) -> str:
    """One line of the table."""
    regrets = [100 * one.regret_after(REGRET_AT) for one in searches]
    boots = [math.inf if (found := one.boots_to(WITHIN)) is None else float(found) for one in searches]
    failed = fmean(one.failed for one in searches)
    never = sum(map(math.isinf, boots))
    return (
        f"| {kind} | {name} | {with_interval(regrets, '.1f')} | {fmean(regrets):.1f} | {with_interval(boots, '.0f')} "
        f"| {never} of {len(searches)} | {failed:.1f} |"
    )


def main() -> None:
    """Print the table, line by line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--proposers", nargs="+", choices=PROPOSERS, default=["gp", "coordinate", "random"])
    parser.add_argument("--landscapes", type=int, default=100)
    parser.add_argument("--memory", choices=("none", "alike", "unlike"), default="none", help="of an earlier study")
    asked = parser.parse_args()
    print(
        f"| kind | strategy | regret after {REGRET_AT}, %: median | mean | boots to within 3 % | never in {MOST} | failed boots |"
    )
    print("|---|---|---|--:|---|--:|--:|")
    seeds = range(FIRST_SEED, FIRST_SEED + asked.landscapes)
    with ProcessPoolExecutor() as pool:
        for kind in asked.kinds:
            for name in asked.proposers:
                print(row(kind, name, list(pool.map(partial(search_of, kind, asked.memory, name), seeds))), flush=True)


if __name__ == "__main__":
    main()
