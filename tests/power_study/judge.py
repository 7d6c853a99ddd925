"""What `dsabench ci` does with boots of one unchanged setting: false alarms, and slowdowns found. Reads `measure.py`'s journal.

    python tests/power_study/judge.py --results results/power-study --out results/power-study/verdicts.json

A family is every workload in every `--metric` (the config's objective, unless given). `--made-up 0.03` judges generated boots
with that spread instead, for a machine quieter than the one measured. Sides are drawn from different boots, without replacement within a draw;
draws share boots, so they are not independent of each other. A slowdown is put into one side's values (throughput times
1 - d, latency over 1 - d): what a server that is slower by d in everything would have given.
"""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from dsabench.model.outcome import Measured
from dsabench.model.record import Record
from dsabench.reporting.comparison import Side
from dsabench.reporting.regression import FALSE_ALARMS, Rules, judge, undisturbed
from dsabench.store.journal import find_journals, read_journal

OBJECTIVE = "total_throughput_tok_s"
SIZES = (3, 5, 10)
GRID = (0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

Boots = list[tuple[Record, ...]]


def boots_of(place: Path, metrics: tuple[str, ...]) -> Boots:
    """Whole boots that were alone on their cores, in order of time, with the judged metrics alone: what `ci` judges."""
    found: dict[str, list[Record]] = {}
    for journal in find_journals(place):
        side = undisturbed(Side(str(journal), read_journal(journal).records))
        for record in side.records:
            if isinstance(record.outcome, Measured):
                kept = {name: record.outcome.metrics[name] for name in metrics}
                found.setdefault(record.boot, []).append(
                    record.model_copy(update={"outcome": Measured(metrics=kept), "resolved": {}})
                )
    prints = [of_boot[0].environment.fingerprint for of_boot in found.values()]
    commonest = max(set(prints), key=prints.count)
    found = {boot: of_boot for boot, of_boot in found.items() if of_boot[0].environment.fingerprint == commonest}
    whole = max(map(len, found.values()))
    return sorted(
        (tuple(of_boot) for of_boot in found.values() if len(of_boot) == whole), key=lambda b: b[0].started_at
    )


def made_up(boots: Boots, spread: float, count: int, seed: int) -> Boots:
    """Boots of their own names whose values are log-normal around the first boot's."""
    rng = np.random.default_rng(seed)
    found: Boots = []
    for _ in range(count):
        name = str(uuid.UUID(int=int(rng.integers(2**62))))
        found.append(
            tuple(
                _slower(r, 1.0 - float(rng.lognormal(0.0, spread))).model_copy(update={"boot": name}) for r in boots[0]
            )
        )
    return found


def slower(boots: Sequence[tuple[Record, ...]], by: float) -> tuple[Record, ...]:
    """The records of these boots, slower by a share."""
    return tuple(_slower(record, by) for boot in boots for record in boot)


def _slower(record: Record, by: float) -> Record:
    assert isinstance(record.outcome, Measured)
    metrics = {
        name: m.model_copy(update={"value": m.value * (1 - by) if "throughput" in name else m.value / (1 - by)})
        for name, m in record.outcome.metrics.items()
    }
    return record.model_copy(update={"outcome": Measured(metrics=metrics)})


def rules_of(boots: Boots, effect: float, looks: int) -> Rules:
    """Of a check of the metrics that the boots have."""
    outcome = boots[0][0].outcome
    assert isinstance(outcome, Measured)
    return Rules(tuple(outcome.metrics), effect, looks=looks, both_grow=True)


def alarm(
    base: Sequence[tuple[Record, ...]], other: Sequence[tuple[Record, ...]], by: float, rules: Rules
) -> tuple[bool, int | None]:
    """(whether anything is proven better or worse, boots that the tool asks for)."""
    found = judge(Side("base", slower(base, 0.0)), Side("candidate", slower(other, by)), rules)
    return any(v.verdict in {"better", "worse"} for v in found.verdicts), found.boots_wanted


def draw(boots: Boots, count: int, rng: np.random.Generator) -> Boots:
    """So many boots in random order; beyond the pool they repeat, under names of their own."""
    if count <= len(boots):
        return [boots[i] for i in rng.permutation(len(boots))[:count]]
    extra = [boots[i] for i in rng.integers(len(boots), size=count - len(boots))]
    renamed = [
        tuple(r.model_copy(update={"boot": name}) for r in boot)
        for boot in extra
        for name in [str(uuid.UUID(int=int(rng.integers(2**62))))]
    ]
    return [*draw(boots, len(boots), rng), *renamed]


def false_alarms(boots: Boots, families: int, seed: int) -> dict[str, object]:
    """A/A at each size, at random and in turns: neighbours in time, one of each side in every two."""
    found: dict[str, object] = {}
    for turns in (False, True):
        for size in SIZES:
            rng = np.random.default_rng(seed)
            alarms = 0
            for _ in range(families):
                if turns:
                    start = int(rng.integers(len(boots) - 2 * size + 1))
                    near = boots[start : start + 2 * size]
                    base, other = near[0::2], near[1::2]
                else:
                    drawn = draw(boots, 2 * size, rng)
                    base, other = drawn[:size], drawn[size:]
                alarms += alarm(base, other, 0.0, rules_of(boots, 0.05, looks=1))[0]
            upper = float(stats.beta.ppf(0.95, alarms + 1, families - alarms)) if alarms < families else 1.0
            found[f"{size} a side, {'in turns' if turns else 'at random'}"] = {
                "families": families,
                "alarms": alarms,
                "upper_95": round(upper, 4),
            }
    return found


def found_with_boots_asked(boots: Boots, by: float, draws: int, seed: int) -> dict[str, object]:
    """The two looks of `ci --against … --boots 5 --max-boots N`: as many as it asks for, drawn from the pool."""
    rng = np.random.default_rng(seed)
    rules = rules_of(boots, by, looks=2)
    found, asked, beyond = 0, [], 0
    for _ in range(draws):
        drawn = draw(boots, 10, rng)
        hit, wanted = alarm(drawn[:5], drawn[5:], by, rules)
        if not hit and wanted is not None:
            asked.append(wanted)
            beyond += 2 * wanted > len(boots)
            more = draw(boots, 2 * wanted, rng)
            hit, _ = alarm(more[:wanted], more[wanted:], by, rules)
        found += hit
    low = float(stats.beta.ppf(0.05, found, draws - found + 1)) if found else 0.0
    middle = int(np.median(asked)) if asked else 5
    return {"slowdown": by, "draws": draws, "found": found, "share": found / draws, "lower_95": round(low, 4), "boots_asked_median": middle,
            "draws_beyond_the_pool": beyond}  # fmt: skip


def smallest_found(boots: Boots, size: int, draws: int, seed: int) -> float | None:
    """The least slowdown of the grid that is found in 95 % of the draws with so many boots a side."""
    for by in GRID:
        rng = np.random.default_rng(seed)
        hits = 0
        for _ in range(draws):
            drawn = draw(boots, 2 * size, rng)
            hits += alarm(drawn[:size], drawn[size:], by, rules_of(boots, 0.05, looks=1))[0]
        if hits >= 0.95 * draws:
            return by
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/power-study"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--families", type=int, default=300)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--metric", action="append")
    parser.add_argument("--made-up", type=float, help="spread of the logarithms")
    given = parser.parse_args()
    metrics = tuple(given.metric or [OBJECTIVE])
    boots = boots_of(given.results, metrics)
    if given.made_up is not None:
        boots = made_up(boots, given.made_up, 3000, 4)
    names = list(dict.fromkeys((r.trial.workload.name, m) for r in boots[0] for m in metrics))
    spread = {
        f"{workload} {metric}": round(
            float(
                np.std(
                    [
                        np.log(r.outcome.metrics[metric].value)
                        for b in boots
                        for r in b
                        if r.trial.workload.name == workload
                    ],
                    ddof=1,
                )
            ),
            4,
        )  # type: ignore[union-attr]
        for workload, metric in names
    }
    found = {
        "boots": len(boots),
        "first": boots[0][0].started_at.isoformat(),
        "last": boots[-1][0].started_at.isoformat(),
        "spread_of_logs": spread,
        "false_alarms_asked_for": FALSE_ALARMS,
        "a_a": false_alarms(boots, given.families, 1),
        "made_up_spread": given.made_up,
        "a_b": [found_with_boots_asked(boots, by, given.draws, 2) for by in (0.05, 0.1, 0.2)],
        "smallest_slowdown_found_at_95": {str(size): smallest_found(boots, size, given.draws, 3) for size in SIZES},
    }
    text = json.dumps(found, indent=1)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
