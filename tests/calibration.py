"""How often each verdict is wrong, and what it finds: the judges of the product on generated boots. Exits 1 where one is worse than nominal.

    python tests/calibration.py                # 1,000 studies a cell, a minute or two on two cores
    python tests/calibration.py --all          # every cell, not the worst of each path

Boots in turns have one of five kinds of noise (2 % log-normal; heavy tails, t with 3 degrees of freedom; two modes; AR(1) with
ρ = 0.9 and 5 %; a trend of 10 % over the run), and 0, 1 or 2 of them failed. Boots apart come from occasions on other days, whose
levels differ by 5 %. Answers of a gate come from questions of evenly spread difficulty. A cell that looks worse than nominal is
measured again with four times as many fresh studies, and that counts: of so many cells some look worse by chance.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import numpy as np

from dsabench.config.specs import StudyConfig
from dsabench.evals.statistics import non_inferiority
from dsabench.model.record import Measured, Metric, Record
from dsabench.model.study import Axis, SearchSpace
from dsabench.model.study_result import Ablation
from dsabench.model.verdict import Verdict
from dsabench.reporting.comparison import ComparedSide, contrasts, judged
from dsabench.reporting.regression import Rules, judge, undisturbed_rounds
from dsabench.results.ablation import changes_of, judge_ablation
from dsabench.results.scores import judge_confirmed, judged_metrics
from dsabench.stats.occasions import NO_VERDICT, ApartOptions
from factories import START, make_failure, make_record
from sequential_stop import NOISE, Logs, Sides, ar1, in_turns, study

POWER_AT = 0.10
"""Effect at which the power is told; of `ci` the loss that undoes it."""
FIRST, MOST = 5, 12
"""Boots a side of `ci`'s first look here, and of its second at most."""
SLACK = 2.0
"""Standard errors above the nominal level that pass."""
DAY_S = 86_400
CALLED = {"better", "worse"}


KINDS: dict[str, Callable[[np.random.Generator, int], Logs]] = {
    **NOISE,
    "AR(1)": lambda rng, n: ar1(rng, n) + rng.normal(0.0, 0.01, n),
    "trend": lambda rng, n: np.linspace(0.0, 0.1, n) + rng.normal(0.0, 0.02, n),
}


@dataclass
class Tally:
    """What one path said in one cell."""

    studies: int = 0
    called: int = 0
    intervals: int = 0
    missed: int = 0

    def add(self, verdict: Verdict, effect: float, *, called: bool) -> None:
        """Count one study."""
        self.studies += 1
        self.called += called
        if verdict.ci_low is not None and verdict.ci_high is not None:
            self.intervals += 1
            self.missed += not verdict.ci_low - 1e-12 <= effect <= verdict.ci_high + 1e-12


NOMINAL = {
    "sweep, 3 boots a side": 0.05,
    "sweep, stopped when decided": 0.05,
    "a change of the winner that gives nothing": 0.05,
    "compare, 5 boots in turns": 0.05,
    "ci in turns, two looks": 0.001,
    "compare, boots apart": 0.05,
    "compare --not-interleaved": 0.05,
    "ci against older boots": 0.001,
    "gate, loss as large as the margin": 0.05,
    "gate, refusal of an equal setting": 0.05,
}


def occasions(rng: np.random.Generator, noise: str, effect: float, failed: int) -> Sides:
    """Four older days of the base, three boots each, and a later day of the candidate."""
    made: list[Record] = []
    lost = set(rng.choice(6, failed, replace=False).tolist())
    for day in range(5):
        level = rng.normal(0.0, 0.05)
        for boot, log in enumerate(KINDS[noise](rng, 3).tolist()):
            value = math.exp(level + log) * (1.0 + effect * (day == 4))
            place = 3 * day + boot
            outcome = make_failure() if place in lost else Measured(metrics={METRIC: Metric(value=value, n=16)})
            record = make_record(workload=_LOAD, boot=f"{place}", outcome=outcome)
            moment = START + timedelta(seconds=DAY_S * day + 60 * boot)
            made.append(record.model_copy(update={"started_at": moment}))
    return tuple(made[:12]), tuple(made[12:])


_EARLY, _WHOLE = study(stops=True), study(stops=False)
_THREE = _WHOLE.model_copy(update={"budget": _WHOLE.budget.model_copy(update={"confirm_boots": 3})})
_LOAD, METRIC = _EARLY.workloads[0], _EARLY.objective.metric


WINNER = {"prefill_backend": "flashmla_sparse", "chunked_prefill_size": 128, "max_running_requests": 16}
"""Three changes; the effect is that of the first, the others give nothing."""


def ablation_study() -> StudyConfig:
    """A study with these axes, of three boots a side."""
    axes = tuple(
        Axis(name=name, values=(before, after))
        for (name, after), before in zip(WINNER.items(), ("flashmla_kv", 256, 8), strict=True)
    )
    base = {**_THREE.runtime.base, "max_running_requests": 8}
    changes = {"runtime": _THREE.runtime.model_copy(update={"base": base}), "space": SearchSpace(axes=axes)}
    return _THREE.model_copy(update=changes)


def ablation(config: StudyConfig, logs: Logs, effect: float, lost: Container[int]) -> Ablation:
    """The winner with its three reduced forms in turns; boots of the winner at the lost places failed."""
    winner, boots = config.spec(WINNER), config.budget.ablate_boots
    first, *others = changes_of(config, winner)
    sides = [first.without, winner, *(one.without for one in others)]
    found: dict[str, list[Record]] = defaultdict(list)
    for place, log in enumerate(logs[: boots * len(sides)].tolist()):
        turn, beside = divmod(place, len(sides))
        spec = sides[beside if turn % 2 == 0 else len(sides) - 1 - beside]
        value = math.exp(log) * (1.0 if spec == first.without else 1.0 + effect)
        measured = Measured(metrics={METRIC: Metric(value=value, n=16)})
        outcome = make_failure() if spec == winner and turn in lost else measured
        record = make_record(spec=spec, workload=_LOAD, phase="ablate", minute=place, boot=f"{place}", outcome=outcome)
        found[spec.id].append(record.model_copy(update={"turn": turn}))
    return judge_ablation(config, winner, lambda spec: {_LOAD.name: found.get(spec.id, [])})


_TAKEN = ablation_study()


def _first(side: Sequence[Record], boots: int) -> tuple[Record, ...]:
    return tuple(side[:boots])


def _compare(sides: Sides, apart: ApartOptions = NO_VERDICT) -> Verdict:
    base, candidate = (ComparedSide(name, side) for name, side in zip(("base", "candidate"), sides, strict=True))
    (verdict,) = judged(contrasts(base, candidate, (METRIC,), apart=apart))
    return verdict


def _ci(sides: Sides, looks: int) -> tuple[Verdict, bool]:
    """(verdict, whether it is a regression): the candidate is the base's side, so that an effect is a loss."""
    rules = Rules((METRIC,), 0.05, looks=looks)
    base, candidate = (ComparedSide(name, side) for name, side in zip(("base", "candidate"), sides[::-1], strict=True))
    if looks == 1:
        one = judge(base, candidate, rules)
        return one.verdicts[0], one.standing == "regression"
    look = judge(*_pair(base, candidate, FIRST), rules)
    if look.standing == "undecided" and look.boots_wanted is not None:
        look = judge(*_pair(base, candidate, min(MOST, max(look.boots_wanted, FIRST + 2))), rules, pilot=FIRST)
    return look.verdicts[0], look.standing == "regression"


def _pair(base: ComparedSide, candidate: ComparedSide, boots: int) -> tuple[ComparedSide, ComparedSide]:
    cut = (ComparedSide(side.name, _first(side.records, boots)) for side in (base, candidate))
    return undisturbed_rounds(*cut)


def boot_cell(cell: tuple[str, int, float], studies: int, seed: int) -> dict[str, Tally]:
    """All paths of boots in one cell."""
    noise, failed, effect = cell
    rng = np.random.default_rng([seed, list(KINDS).index(noise), failed, round(1000 * effect)])
    found: dict[str, Tally] = defaultdict(Tally)
    metrics, loss = judged_metrics(_EARLY.objective), 1.0 / (1.0 + effect) - 1.0

    def count(path: str, verdict: Verdict) -> None:
        found[path].add(verdict, effect, called=verdict.verdict in CALLED)

    for _ in range(studies):
        logs = KINDS[noise](rng, 2 * MOST)
        sides = in_turns(_EARLY, logs, effect, lost=set(rng.choice(6, failed, replace=False).tolist()))
        for path, config, boots in (
            ("sweep, 3 boots a side", _THREE, 3),
            ("sweep, stopped when decided", _EARLY, 6),
        ):
            base, candidate = ({_LOAD.name: _first(side, boots)} for side in sides)
            count(path, judge_confirmed(config, base, candidate, metrics).verdicts[0])
        taken = ablation(_TAKEN, KINDS[noise](rng, 16), effect, rng.choice(4, failed, replace=False).tolist())
        first, path = taken.changes[0], "a change of the winner that gives nothing"
        # At no effect whether any change is said to matter, else whether the one that does stays.
        words = {verdict.verdict for one in taken.changes for verdict in one.verdicts}
        found[path].add(first.verdicts[0], effect, called=first.decision == "kept" if effect else bool(words & CALLED))
        count("compare, 5 boots in turns", _compare((_first(sides[0], 5), _first(sides[1], 5))))
        verdict, is_regression = _ci(sides, 2)
        found["ci in turns, two looks"].add(verdict, loss, called=is_regression)
        days = occasions(rng, noise, effect, failed)
        count("compare, boots apart", _compare(days))
        count("compare --not-interleaved", _compare(days, ApartOptions(widen=True)))
        verdict, is_regression = _ci(days, 1)
        found["ci against older boots"].add(verdict, loss, called=is_regression)
    return dict(found)


def gate_cell(studies: int, seed: int) -> dict[str, tuple[Tally, float]]:
    """(what a gate of 300 questions × 4 and a margin of 3 points says, its power)."""
    rng, questions, repeats, margin, score = np.random.default_rng(seed), 300, 4, 0.03, 0.8
    lost, equal = Tally(), Tally()
    accepted = 0
    for _ in range(studies):
        chances = rng.beta(2 * score, 2 * (1 - score), questions)
        for tally, loss in ((lost, margin), (equal, 0.0)):
            worse = chances * (1.0 - loss / score)  # so many points in all
            base, candidate = (
                (rng.random((repeats, questions)) < p).T.astype(float).tolist() for p in (chances, worse)
            )
            said = non_inferiority(base, candidate, margin)
            tally.studies += 1
            tally.called += said.answer == ("yes" if loss else "no")
            tally.intervals += 1
            tally.missed += not said.interval.low <= -loss <= said.interval.high
            accepted += said.answer == "yes" and not loss
    power = accepted / studies
    return {"gate, loss as large as the margin": (lost, power), "gate, refusal of an equal setting": (equal, power)}


@dataclass(frozen=True)
class Row:
    """One path in one cell, at no effect."""

    path: str
    place: tuple[str, int]
    """Noise, and boots that failed."""
    called: float
    missed: float
    studies: int
    intervals: int
    confidence: float
    """Of its intervals."""

    @property
    def cell(self) -> str:
        """For people."""
        return f"{self.place[0]}, {self.place[1]} failed" if self.place[1] else self.place[0]

    @property
    def excess(self) -> float:
        """Standard errors above the nominal level."""
        nominal = NOMINAL[self.path]
        return (self.called - nominal) / math.sqrt(nominal * (1 - nominal) / self.studies)

    @property
    def is_calibrated(self) -> bool:
        """Whether errors are at most nominal + 2 standard errors, and intervals cover at least nominal - 2 points."""
        return self.excess <= SLACK and self.missed <= (1.0 - self.confidence) + 0.02


def rows_of(cells: Sequence[tuple[str, int]], tallies: Sequence[dict[str, Tally]]) -> list[Row]:
    """A row for each path and cell."""
    return [
        Row(path, place, t.called / t.studies, t.missed / max(t.intervals, 1), t.studies, t.intervals, 0.95)
        for place, found in zip(cells, tallies, strict=True)
        for path, t in found.items()
    ]  # fmt: skip


def gate_rows(gates: dict[str, tuple[Tally, float]]) -> list[Row]:
    """A row for each path; the intervals of a gate are of 90 %."""
    return [
        Row(path, ("questions", 0), t.called / t.studies, t.missed / t.intervals, t.studies, t.intervals, 0.90)
        for path, (t, _) in gates.items()
    ]


def dropped(studies: int, seed: int) -> str:
    """How often a change goes, by what it gives: a Markdown table."""
    effects = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)
    lines = [
        f"| a change gives | {' | '.join(f'{100 * effect:g} %' for effect in effects)} |",
        f"|---{'|--:' * len(effects)}|",
    ]
    for noise, logs in KINDS.items():
        shares = []
        for effect in effects:
            rng = np.random.default_rng([seed, list(KINDS).index(noise), round(1000 * effect)])
            taken = [ablation(_TAKEN, logs(rng, 16), effect, ()) for _ in range(studies)]
            shares.append(sum(one.changes[0].decision == "dropped" for one in taken) / studies)
        lines.append(f"| {noise} | {' | '.join(f'{100 * share:.0f} %' for share in shares)} |")
    return "\n".join(lines)


def _share(share: float, cell: str) -> str:
    return f"{100 * share:.1f} % ({cell})" if share else "0"


def main() -> int:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    cells = [(noise, failed) for noise in KINDS for failed in (0, 1, 2)]
    work = partial(boot_cell, studies=given.studies, seed=given.seed)
    with ProcessPoolExecutor(2) as pool:
        level = list(pool.map(work, [(*cell, 0.0) for cell in cells]))
        power = list(pool.map(work, [(noise, 0, POWER_AT) for noise in KINDS]))
        rows = rows_of(cells, level)
        doubted = sorted({row.place for row in rows if not row.is_calibrated})
        again = partial(boot_cell, studies=4 * given.studies, seed=given.seed + 1)
        fresh = {
            (row.path, row.cell): row for row in rows_of(doubted, list(pool.map(again, [(*c, 0.0) for c in doubted])))
        }
    rows = [row if row.is_calibrated else fresh[row.path, row.cell] for row in rows]
    gates = gate_cell(4 * given.studies, given.seed)
    if not all(row.is_calibrated for row in gate_rows(gates)):
        gates = gate_cell(16 * given.studies, given.seed + 1)
    rows += gate_rows(gates)
    found = {path: [cell[path].called / cell[path].studies for cell in power] for path in power[0]}
    found |= {path: [chance] for path, (_, chance) in gates.items()}
    print(f"| verdict | nominal | wrong, worst cell | interval misses, worst cell | finds {POWER_AT:.0%} |")
    print("|---|--:|--:|--:|--:|")
    for path, nominal in NOMINAL.items():
        of_path = [row for row in rows if row.path == path]
        shown = of_path if given.all else [max(of_path, key=lambda row: row.called)]
        worst = max(of_path, key=lambda row: row.missed)
        low, high = min(found[path]), max(found[path])
        power_words = f"{low:.0%}" if low == high else f"{low:.0%} to {high:.0%}"
        for row in shown:
            miss = row if given.all else worst
            print(
                f"| {path} | {100 * nominal:g} % | {_share(row.called, row.cell)} | "
                f"{_share(miss.missed, miss.cell)} | {power_words} |"
            )
    print(f"\nShare of studies in which a change of the winner goes:\n\n{dropped(given.studies // 4, given.seed)}")
    bad = [row for row in rows if not row.is_calibrated]
    for row in bad:
        print(
            f"not calibrated: {row.path}, {row.cell}: {row.called:.1%} called, {row.missed:.1%} of {row.intervals} missed",
            file=sys.stderr,
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
