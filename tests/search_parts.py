"""What parts of a search with gp are worth: what its winner loses with and without each of them.

    python tests/search_parts.py                                              # 100 landscapes of two kinds, two minutes on two cores
    python tests/search_parts.py --landscape results/reference-landscape/landscape.jsonl.gz --settings 14

A landscape that is named is searched with 100 seeds. Other landscapes than those of search_study.py, as defaults were chosen by this table.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean

from dsabench.model.space import canonical, is_legal, key_of
from dsabench.model.study import Assignment
from dsabench.study.landscape import Landscape, read_landscape
from dsabench.study.proposers import Observation, SearchTask, proposer_for
from dsabench.study.proposers.expected import expected_values, measured_values
from dsabench.study.replay import replay
from dsabench.study.synthetic import KINDS, generate
from search_study import with_interval

FIRST_SEED, BOOTS, MORE = 3000, 3, 3
MEASURED, EXPECTED = "best as measured", "best as predicted"
CONFIRMED = f"two best as predicted, the better one by {BOOTS} boots each"
COMBINED = "best as predicted, after a boot with the best value of each axis"
LONGER = f"best as predicted, after {MORE} more settings"


def losses(kind: str, file: Path | None, settings: int, seed: int) -> dict[str, float]:
    """Part → what the winner of one search loses against the best setting, in percent."""
    landscape = generate(kind, seed) if file is None else read_landscape(file)
    header = landscape.header
    task = SearchTask(header.space, header.base, seed, header.direction, settings, frozenset(header.reload_free))
    histories: list[list[Observation]] = []

    def worth(task: SearchTask, history: Sequence[Observation]) -> list[float | None]:
        histories.append(list(history))
        return measured_values(task, history)

    replay(landscape, task, proposer_for("gp", task), within=-1.0, most=settings + MORE, worth=worth)
    history, longer = histories[settings - 1], histories[-1]

    def ranked(told: Sequence[Observation], values: Sequence[float | None]) -> list[Assignment]:
        feasible = [
            (header.sign * value, one.assignment)
            for one, value in zip(told, values, strict=True)
            if value and not one.violation
        ]
        return [one for _, one in sorted(feasible, key=lambda pair: -pair[0])]

    def loss(one: Assignment) -> float:
        return 100 * landscape.regret(landscape.setting(one))

    expected = ranked(history, expected_values(task, history))
    rng = random.Random(seed)
    spread = header.noise / math.sqrt(BOOTS)
    confirmed = max(
        expected[:2],
        key=lambda one: header.sign * math.log(landscape.setting(one).value or math.nan) + spread * rng.gauss(0.0, 1.0),
    )
    return {
        MEASURED: loss(ranked(history, measured_values(task, history))[0]),
        EXPECTED: loss(expected[0]),
        CONFIRMED: loss(confirmed),
        COMBINED: min(loss(expected[0]), combined(landscape, task, history)),
        LONGER: loss(ranked(longer, expected_values(task, longer))[0]),
    }


def combined(landscape: Landscape, task: SearchTask, history: Sequence[Observation]) -> float:
    """What the setting loses that has the best value of each axis, by the mean of what was measured with it; infinite where it is
    illegal, known or fails.
    """
    sign, space = landscape.header.sign, task.space
    chosen = {}
    for axis in space.axes:
        of_value = defaultdict[object, list[float]](list)
        for one in history:
            if one.value and axis.name in one.assignment:
                of_value[one.assignment[axis.name]].append(sign * math.log(one.value))
        tried = [value for value in axis.values if value in of_value]
        if tried:
            chosen[axis.name] = max(tried, key=lambda value, means=of_value: fmean(means[value]))
    setting = canonical(space, task.base, {**task.base, **chosen})
    place = landscape.by_key.get(key_of(setting))
    if place is None or key_of(setting) in task.seen(history) or not is_legal(space, task.base, setting):
        return math.inf
    found = landscape.settings[place]
    return 100 * landscape.regret(found) if found.is_feasible else math.inf


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["smooth", "rugged"])
    parser.add_argument("--landscape", type=Path)
    parser.add_argument("--landscapes", type=int, default=100)
    parser.add_argument("--settings", type=int, default=24)
    asked = parser.parse_args()
    print(f"| landscape | winner after {asked.settings} settings | loses, %: median | mean |\n|---|---|---|--:|")
    seeds = range(FIRST_SEED, FIRST_SEED + asked.landscapes)
    with ProcessPoolExecutor() as pool:
        for kind in asked.kinds if asked.landscape is None else [asked.landscape.parent.name]:
            found = list(pool.map(partial(losses, kind, asked.landscape, asked.settings), seeds))
            for part in found[0]:
                of_part = [one[part] for one in found]
                print(f"| {kind} | {part} | {with_interval(of_part, '.1f')} | {fmean(of_part):.2f} |", flush=True)


if __name__ == "__main__":
    main()
