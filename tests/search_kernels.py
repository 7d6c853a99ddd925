"""What times of kernels are worth to a search with gp, on landscapes that were measured.

    python tests/search_kernels.py configs/local-landscape.yaml results/reference-landscape/landscape.jsonl.gz results/reference-landscape/kernels
    python tests/search_kernels.py configs/h200-landscape.yaml results/h200-landscape/landscape.jsonl.gz results/h200/kernels --noise 0.02

"Wrong" times are one over the right ones: the slowest setting comes first. Two minutes each.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from scipy.stats import spearmanr

from dsabench.config.load import load_study
from dsabench.config.specs import MemorySpec
from dsabench.kernelbench.table import read_points
from dsabench.model.space import key_of
from dsabench.study.landscape import read_landscape
from dsabench.study.memory import Memory, relative, remember
from dsabench.study.replay import Replay, search
from search_study import with_interval

MOST, EARLY = 45, 6


def row(name: str, found: Sequence[Replay]) -> str:
    """Of the table."""
    boots = [math.inf if (at := one.boots_to(0.03)) is None else float(at) for one in found]
    early = [100 * min(one.regret_after(EARLY), 1.0) for one in found]
    never, mean = sum(map(math.isinf, boots)), fmean(min(one, MOST) for one in boots)
    return f"| {name} | {with_interval(early, '.1f')} | {with_interval(boots, '.0f')} | {mean:.1f} | {never} of {len(found)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("landscape", type=Path)
    parser.add_argument("kernels", type=Path)
    parser.add_argument("--noise", type=float, help="In place of the landscape's.")
    parser.add_argument("--seeds", type=int, default=100)
    asked = parser.parse_args()
    config, landscape = load_study(asked.config), read_landscape(asked.landscape)
    if asked.noise is not None:
        header = landscape.header.model_copy(update={"noise": asked.noise})
        landscape = landscape.model_copy(update={"header": header})
    wanted = MemorySpec(kernels=str(asked.kernels), winners=1)
    environment = read_points(asked.kernels)[0].environment
    right = remember(config.model_copy(update={"memory": wanted}), environment)
    values = {
        key_of(one.setting): landscape.settings[landscape.by_key[key_of(one.setting)]].value for one in right.earlier
    }
    told = [(one.value, value) for one in right.earlier if (value := values[key_of(one.setting)]) is not None]
    print(f"{len(told)} settings, rank correlation {spearmanr(told).statistic:.2f}")
    inverse = relative([(one.setting, 1.0 / one.value) for one in right.earlier])
    slowest = max(inverse, key=lambda one: one.value).setting
    memories = {"none": None, "right": right, "wrong": Memory((slowest,), tuple(inverse))}
    print(f"| kernel times | regret after {EARLY} settings, %: median | boots to within 3 % | mean | never in {MOST} |")
    print("|---|---|---|--:|--:|")
    for name, memory in memories.items():
        searches = [search(landscape, "gp", seed, within=0.03, most=MOST, memory=memory) for seed in range(asked.seeds)]
        print(row(name, searches), flush=True)


if __name__ == "__main__":
    main()
