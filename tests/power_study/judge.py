"""What `dsabench ci` does with boots of one setting and of a slower one: false alarms, and slowdowns found. Reads `measure.py`'s journals.

    python tests/power_study/judge.py --results results/power-study/quiet --out results/power-study/quiet/verdicts.json

What is drawn and why: results/power-study/PROTOCOL.md. `--everything` judges rounds with busy neighbours too. `--made-up 0.02` judges
generated boots instead: independent, log-normal with that spread, the candidate slower by 5 %.
"""

from __future__ import annotations

import argparse
import gzip
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
from scipy import stats

from dsabench.machine.cpu_use import is_disturbed
from dsabench.model.record import Measured, Record
from dsabench.reporting.comparison import ComparedSide
from dsabench.reporting.regression import FALSE_ALARMS, Rules, judge
from dsabench.results.journal import FILE_NAME, Journal, parse_journal

OBJECTIVE = "total_throughput_tok_s"
EFFECT = 0.05
FIRST = 5
_BLOCK = 12
"""Rounds that a resample keeps together."""
SIZES = (3, 5, 10)
GRID = (0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LEVELS = {"1 in 10,000": 0.0001, "1 in 1,000, ci's default": FALSE_ALARMS, "5 in 100, compare's": 0.05}
CHECKED = (0.0001, FALSE_ALARMS)

Boot = tuple[Record, ...]
Rounds = list[tuple[Boot, Boot]]
Window = Callable[[int], Rounds]
"""So many rounds (base, candidate) of one draw; a longer window holds the shorter one. Empty where there are too few."""


def records_of(place: Path) -> tuple[Record, ...]:
    """Of a journal; a committed one is packed."""
    packed = place / f"{FILE_NAME}.gz"
    if packed.is_file():
        return parse_journal(gzip.decompress(packed.read_bytes()), packed).records
    return Journal(place).read().records


def boots_of(place: Path) -> dict[str, Boot]:
    """Boot → its records in order, the objective alone. A boot that lacks a workload is none."""
    found: dict[str, list[Record]] = {}
    for record in records_of(place):
        if isinstance(record.outcome, Measured):
            kept = record.outcome.model_copy(update={"metrics": {OBJECTIVE: record.outcome.metrics[OBJECTIVE]}})
            found.setdefault(record.boot, []).append(record.model_copy(update={"outcome": kept, "resolved": {}}))
    whole = max(map(len, found.values()))
    return {boot: tuple(records) for boot, records in found.items() if len(records) == whole}


def rounds_of(place: Path) -> Rounds:
    """The i-th boots of both sides, where both gave numbers; both journals count failed boots."""
    sides = []
    for name in ("base", "candidate"):
        order = list(dict.fromkeys(record.boot for record in records_of(place / name)))
        sides.append((order, boots_of(place / name)))
    (left, base), (right, candidate) = sides
    return [(base[b], candidate[c]) for b, c in zip(left, right, strict=False) if b in base and c in candidate]


def is_quiet(of_round: Sequence[Boot]) -> bool:
    """Whether `dsabench ci` would judge by it."""
    return not any(is_disturbed(r.outcome.warnings) for b in of_round for r in b if isinstance(r.outcome, Measured))


def made_up(like: tuple[Boot, Boot], spread: float, count: int, seed: int) -> Rounds:
    """Independent log-normal boots with a base's names, times and mean, and their own numbers."""
    rng = np.random.default_rng(seed)

    def one(boot: Boot, number: int, by: float) -> Boot:
        at, name = timedelta(seconds=3 * number), str(uuid.UUID(int=int(rng.integers(2**62))))
        changes = {"boot": name, "started_at": like[0][0].started_at + at}
        return tuple(
            slower(r, 1.0 - (1.0 - by) * float(rng.lognormal(0.0, spread))).model_copy(update=changes) for r in boot
        )

    return [(one(like[0], 2 * i, 0.0), one(like[0], 2 * i + 1, EFFECT)) for i in range(count)]


def slower(record: Record, by: float) -> Record:
    """A record with a throughput that is lower by a share."""
    assert isinstance(record.outcome, Measured)
    metrics = {name: m.model_copy(update={"value": m.value * (1 - by)}) for name, m in record.outcome.metrics.items()}
    return record.model_copy(update={"outcome": record.outcome.model_copy(update={"metrics": metrics})})


@dataclass(frozen=True)
class Look:
    """What one judging said."""

    alarm: bool
    """Anything is proven better or worse."""
    worse: bool
    wanted: int | None


def look(rounds: Rounds, rules: Rules, by: float = 0.0, pilot: int = 0) -> Look:
    """Judge these rounds, the candidate's values made lower by a share; `pilot` as in `judge`."""
    base = tuple(record for boot, _ in rounds for record in boot)
    candidate = tuple(slower(record, by) if by else record for _, boot in rounds for record in boot)
    found = judge(ComparedSide("base", base), ComparedSide("candidate", candidate), rules, pilot)
    words = {verdict.verdict for verdict in found.verdicts}
    wanted = None if found.standing != "undecided" else found.boots_wanted
    return Look(bool(words & {"better", "worse"}), "worse" in words, wanted)


def neighbours(rounds: Rounds, rng: np.random.Generator) -> Window:
    """Rounds that follow each other, from a random one on; the window reaches back where the end is near."""
    start = int(rng.integers(len(rounds)))

    def window(size: int) -> Rounds:
        first = min(start, len(rounds) - size)
        return rounds[first : first + size] if first >= 0 else []

    return window


def in_twos(boots: Sequence[Boot], rng: np.random.Generator) -> Window:
    """Boots of one side that follow each other, in twos; one of each two is drawn to be the candidate."""
    offset = int(rng.integers(2))
    twos = [(boots[i], boots[i + 1]) for i in range(offset, len(boots) - 1, 2)]
    turned = rng.integers(2, size=len(twos))
    return neighbours([(b, a) if turn else (a, b) for (a, b), turn in zip(twos, turned, strict=True)], rng)


@dataclass(frozen=True)
class Checked:
    """A whole check: up to two looks."""

    alarm: bool
    worse: bool
    rounds: int
    short: bool
    """More boots were asked for than were measured."""


def check(window: Window, level: float) -> Checked:
    """`ci --against … --boots 5 --effect 0.05 --false-alarms LEVEL` with as many more boots as it asks for."""
    rules = Rules((OBJECTIVE,), EFFECT, looks=2, false_alarms=level)
    first = look(window(FIRST), rules)
    if first.wanted is None or first.wanted <= FIRST:
        return Checked(first.alarm, first.worse, FIRST, short=False)
    more = window(first.wanted)
    if not more:
        return Checked(alarm=False, worse=False, rounds=first.wanted, short=True)
    second = look(more, rules, pilot=FIRST)
    return Checked(first.alarm or second.alarm, first.worse or second.worse, first.wanted, short=False)


def upper(events: int, draws: int) -> float:
    """Clopper-Pearson's upper 95 % limit of a rate."""
    return round(float(stats.beta.ppf(0.95, events + 1, draws - events)), 4) if events < draws else 1.0


def false_alarms(boots: Sequence[Boot], families: int, level: float) -> dict[str, object]:
    """A/A: the whole check, and one look at each size."""
    found: dict[str, object] = {}
    rng = np.random.default_rng(1)
    checks = [check(in_twos(boots, rng), level) for _ in range(families)]
    alarms = sum(one.alarm for one in checks)
    found["whole check"] = {"families": families, "alarms": alarms, "upper_95": upper(alarms, families),
                            "boots_a_side_median": float(np.median([one.rounds for one in checks])),
                            "too_few_boots": sum(one.short for one in checks)}  # fmt: skip
    for size in SIZES:
        rng = np.random.default_rng(1)
        rules = Rules((OBJECTIVE,), EFFECT, looks=1, false_alarms=level)
        alarms = sum(look(in_twos(boots, rng)(size), rules).alarm for _ in range(families))
        found[f"{size} a side"] = {"families": families, "alarms": alarms, "upper_95": upper(alarms, families)}
    return found


def drawn_checks(rounds: Rounds, draws: int, level: float) -> list[Checked]:
    """A/B: a whole check at each of so many places."""
    rng = np.random.default_rng(2)
    return [check(neighbours(rounds, rng), level) for _ in range(draws)]


def slowdown_found(rounds: Rounds, draws: int, level: float) -> dict[str, object]:
    """A/B: the whole check."""
    checks = drawn_checks(rounds, draws, level)
    found = sum(one.worse for one in checks)
    low = float(stats.beta.ppf(0.05, found, draws - found + 1)) if found else 0.0
    asked = [one.rounds for one in checks]
    return {"draws": draws, "found": found, "share": round(found / draws, 4), "lower_95": round(low, 4),
            "boots_a_side_median": float(np.median(asked)), "boots_a_side_p95": float(np.percentile(asked, 95)),
            "too_few_boots": sum(one.short for one in checks)}  # fmt: skip


def resampled(rounds: Rounds, rng: np.random.Generator) -> Rounds:
    """As many rounds, drawn with replacement in blocks so that drift stays; boots get new names and the
    times of their new places.
    """
    starts = rng.integers(0, len(rounds) - _BLOCK + 1, size=-(-len(rounds) // _BLOCK))
    drawn = [rounds[start + place] for start in starts for place in range(_BLOCK)][: len(rounds)]
    begin = rounds[0][0][0].started_at

    def moved(boot: Boot, number: int) -> Boot:
        name, shift = f"drawn-{number}", begin + timedelta(seconds=3 * number) - boot[0].started_at
        return tuple(r.model_copy(update={"boot": name, "started_at": r.started_at + shift}) for r in boot)

    return [(moved(base, 2 * i), moved(other, 2 * i + 1)) for i, (base, other) in enumerate(drawn)]


def found_in_resamples(rounds: Rounds, times: int, draws: int, level: float) -> dict[str, float]:
    """How much the share that is found hangs on which rounds were measured."""
    rng = np.random.default_rng(4)
    checks = [drawn_checks(resampled(rounds, rng), draws, level) for _ in range(times)]
    shares = [sum(one.worse for one in of_draw) / draws for of_draw in checks]
    low, high = np.percentile(shares, (5, 95))
    return {"resamples": times, "mean": round(float(np.mean(shares)), 4), "sd": round(float(np.std(shares, ddof=1)), 4),
            "p5": round(float(low), 4), "p95": round(float(high), 4)}  # fmt: skip


def smallest_found(boots: Sequence[Boot], draws: int, size: int, level: float) -> float | None:
    """The least slowdown of the grid that is found in 95 % of the draws with so many boots a side."""
    rules = Rules((OBJECTIVE,), EFFECT, looks=1, false_alarms=level)
    for by in GRID:
        rng = np.random.default_rng(3)
        if sum(look(in_twos(boots, rng)(size), rules, by).worse for _ in range(draws)) >= 0.95 * draws:
            return by
    return None


def spreads(rounds: Rounds) -> dict[str, object]:
    """Of each workload: spread between boots, spread and correlation of the two of a round, and how much slower the candidate was."""
    found: dict[str, object] = {}
    for number, record in enumerate(rounds[0][0]):
        logs = np.log([[_value(base[number]), _value(other[number])] for base, other in rounds])
        differences = logs[:, 1] - logs[:, 0]
        half = float(stats.t.ppf(0.975, len(rounds) - 1)) * stats.sem(differences)
        found[record.trial.workload.name] = {
            "spread_of_base": round(float(np.std(logs[:, 0], ddof=1)), 4),
            "spread_of_a_rounds_difference": round(float(np.std(differences, ddof=1)), 4),
            "correlation_in_a_round": round(float(np.corrcoef(logs.T)[0, 1]), 3),
            "candidate_to_base": [round(float(np.expm1(np.mean(differences) + z * half)), 4) for z in (-1, 0, 1)],
        }
    return found


def _value(record: Record) -> float:
    assert isinstance(record.outcome, Measured)
    return record.outcome.metrics[OBJECTIVE].value


def study(rounds: Rounds, draws: int) -> dict[str, object]:
    """All that the protocol asks for."""
    if len(rounds) < 2 * max(SIZES) + 1:
        raise SystemExit(f"{len(rounds)} rounds: at least {2 * max(SIZES) + 1} are needed")
    base, candidate = ([of_round[side] for of_round in rounds] for side in (0, 1))
    return {
        "rounds": len(rounds),
        "first": rounds[0][0][0].started_at.isoformat(),
        "last": rounds[-1][0][0].started_at.isoformat(),
        "logs": spreads(rounds),
        "checks": {
            str(level): {
                "a_a_base": false_alarms(base, draws, level),
                "a_a_candidate": false_alarms(candidate, draws, level),
                "a_b": slowdown_found(rounds, draws, level),
            }
            for level in CHECKED
        },
        "smallest_slowdown_found_at_95": {
            level: {str(size): smallest_found(base, draws, size, chance) for size in SIZES}
            for level, chance in LEVELS.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/power-study/quiet"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--everything", action="store_true", help="rounds with busy neighbours too")
    parser.add_argument("--resample", type=int, metavar="N", help="only: how the A/B result spreads over N resamples")
    parser.add_argument("--made-up", type=float, help="spread of the logarithms")
    given = parser.parse_args()
    measured = rounds_of(given.results)
    rounds = measured if given.everything else [one for one in measured if is_quiet(one)]
    left_out = len(measured) - len(rounds)
    if given.made_up is not None:
        rounds, left_out = made_up(measured[0], given.made_up, 300, 4), 0
    if given.resample is not None:
        print(json.dumps({str(one): found_in_resamples(rounds, given.resample, given.draws, one) for one in CHECKED}))
        return
    found = {"rounds_left_out": left_out, "made_up_spread": given.made_up, **study(rounds, given.draws)}
    text = json.dumps(found, indent=1)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
