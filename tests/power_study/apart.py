"""What `compare` and `ci` say of one unchanged setting whose boots lie apart, and what they would say if the boots counted as independent.

    python tests/power_study/apart.py --results results/power-study/quiet

A base of five boots in a row, and five boots in a row of the same side that begin so many minutes after it; every pair of places in
the recorded rounds, and all workloads and metrics of both commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from judge import records_of
from scipy import stats

from dsabench.model.record import Measured, Record
from dsabench.reporting.comparison import DEFAULT_METRICS, ComparedSide, contrasts, judged
from dsabench.reporting.regression import Rules, judge
from dsabench.results.scores import boot_values
from dsabench.stats.occasions import ApartOptions

BOOTS = 5
MINUTES = (5, 15, 60)
METRIC = "total_throughput_tok_s"
Boot = tuple[Record, ...]


def boots_of(journal: Path) -> list[Boot]:
    """In order of time; those that lack a workload are none."""
    found: dict[str, list[Record]] = {}
    for record in records_of(journal):
        if isinstance(record.outcome, Measured):
            kept = {
                name: record.outcome.metrics[name]
                for name in (METRIC, *DEFAULT_METRICS)
                if name in record.outcome.metrics
            }
            outcome = record.outcome.model_copy(update={"metrics": kept})
            found.setdefault(record.boot, []).append(record.model_copy(update={"outcome": outcome, "resolved": {}}))
    whole = max(map(len, found.values()))
    return sorted((tuple(b) for b in found.values() if len(b) == whole), key=lambda boot: boot[0].started_at)


def pairs(boots: Sequence[Boot], minutes: int, step: int) -> Iterator[tuple[ComparedSide, ComparedSide]]:
    """Base and candidate, every `step`-th place."""
    starts_s = [boot[0].started_at.timestamp() for boot in boots]
    for first in range(0, len(boots) - 2 * BOOTS, step):
        later = int(np.searchsorted(starts_s, starts_s[first + BOOTS - 1] + 60 * minutes))
        if later + BOOTS <= len(boots):
            yield _side("base", boots[first : first + BOOTS]), _side("later", boots[later : later + BOOTS])


def _side(name: str, boots: Sequence[Boot]) -> ComparedSide:
    return ComparedSide(name, tuple(record for boot in boots for record in boot))


def called(base: ComparedSide, later: ComparedSide, level: float) -> bool:
    """Whether Welch's test of the boots calls a difference in any workload, corrected for their number."""
    names = {record.trial.workload.name for record in base.records}
    found = []
    for name in names:
        logs = [
            np.log(
                [one.value for one in boot_values([r for r in side.records if r.trial.workload.name == name], METRIC)]
            )
            for side in (base, later)
        ]
        found.append(float(stats.ttest_ind(*logs, equal_var=False).pvalue))
    return min(found) <= level / len(found)


def main() -> None:
    """Print a line a gap."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/power-study/quiet"))
    parser.add_argument("--step", type=int, default=3, help="take every N-th place")
    given = parser.parse_args()
    rules = Rules((METRIC,), 0.05, looks=1)
    for minutes in MINUTES:
        counts = {
            "pairs": 0,
            "independent, 5 %": 0,
            "independent, 0.1 %": 0,
            "compare": 0,
            "--not-interleaved": 0,
            "ci": 0,
        }
        for side in ("base", "candidate"):
            for base, later in pairs(boots_of(given.results / side), minutes, given.step):
                counts["pairs"] += 1
                counts["independent, 5 %"] += called(base, later, 0.05)
                counts["independent, 0.1 %"] += called(base, later, 0.001)
                for name, apart in (("compare", ApartOptions()), ("--not-interleaved", ApartOptions(widen=True))):
                    words = {v.verdict for v in judged(contrasts(base, later, DEFAULT_METRICS, apart=apart))}
                    counts[name] += bool(words & {"better", "worse"})
                counts["ci"] += judge(base, later, rules).standing == "regression"
        told = ", ".join(f"{name} {count}" for name, count in counts.items() if name != "pairs")
        print(f"{minutes} minutes apart, {counts['pairs']} pairs called different: {told}")


if __name__ == "__main__":
    main()
