"""Has it become slower? A candidate's boots against a baseline's, with the boots that a verdict would still take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dsabench.machine.cpu_use import is_disturbed
from dsabench.model.record import Measured, Record
from dsabench.model.verdict import BOOTS_MIN, Verdict
from dsabench.reporting.comparison import ComparedSide, contrasts
from dsabench.stats.compare import BootComparison, LogRatioEstimate, judge_family
from dsabench.stats.occasions import ApartOptions
from dsabench.stats.power import BOOTS_MAX, boots_needed, careful_spread

FALSE_ALARMS = 0.001
"""Chance that a check fails although nothing changed. At 5 % a nightly would cry wolf every third week."""
POWER = 0.95
"""With which the boots that are asked for show the effect."""

Standing = Literal["regression", "passed", "undecided"]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Boots of one side in which other processes used the measured cores: not judged, or judged for want of others."""

    left_out: int = 0
    counted: int = 0

    def said(self, whose: str) -> list[str]:
        """A clause each, to stand behind the sentence."""
        words = (
            (self.left_out, "left out"),
            (self.counted, f"counted all the same, for fewer than {BOOTS_MIN} were quiet"),
        )
        return [f"{many} of {whose} boots {what}" for many, what in words if many]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One look at the boots."""

    verdicts: tuple[Verdict, ...]
    effect: float
    """The relative difference that must not be missed."""
    boots_wanted: int | None
    """Boots of the candidate at which the effect is detectable in every metric; None: no number of them is enough."""
    boots_had: int
    interleaved: bool = True
    """Whether the boots of both sides took turns in every comparison."""
    neighbours: tuple[Neighbours, Neighbours] = (Neighbours(), Neighbours())
    """Of the baseline and of the candidate."""

    @property
    def standing(self) -> Standing:
        """`regression`: something is proven worse. `passed`: nothing is, and the effect would have been seen."""
        if any(verdict.verdict == "worse" for verdict in self.verdicts):
            return "regression"
        return "undecided" if any(map(self.is_open, self.verdicts)) else "passed"

    def is_open(self, verdict: Verdict) -> bool:
        """Whether a difference of the size asked for could hide in it."""
        return verdict.verdict == "inconclusive" and (verdict.mde is None or verdict.mde > self.effect)

    @property
    def sentence(self) -> str:
        """One line for people."""
        clauses = [
            clause
            for one, whose in zip(self.neighbours, ("the baseline's", "the candidate's"), strict=True)
            for clause in one.said(whose)
        ]
        return f"{self._answer}; neighbours on the measured cores: {', '.join(clauses)}" if clauses else self._answer

    @property
    def _answer(self) -> str:
        worse = [verdict for verdict in self.verdicts if verdict.verdict == "worse"]
        if worse:
            named = ", ".join(f"{v.workload} {v.metric} {100 * (v.effect or 0.0):+.1f} %" for v in worse)
            return f"regression: {named}"
        opened = sum(map(self.is_open, self.verdicts))
        if not opened:
            return f"no regression: a difference of {self.effect:.0%} would have been seen in all {len(self.verdicts)} comparisons"
        return f"inconclusive in {opened} of {len(self.verdicts)} comparisons at {self.effect:.0%}: {self._way_on()}"

    def _way_on(self) -> str:
        if not self.interleaved:
            return (
                "more boots now decide nothing, boots in turns do (--in-turns, --base-ref, --against), and so may a baseline of "
                "more occasions (--init again)"
            )
        if self.boots_wanted is not None:
            return self._more()
        return f"takes more than {BOOTS_MAX:,} boots a side with this spread"

    def _more(self) -> str:
        assert self.boots_wanted is not None
        missing = max(self.boots_wanted - self.boots_had, 1)
        return f"needs {missing} more boot{'s' if missing > 1 else ''} ({self.boots_had + missing} in all)"


@dataclass(frozen=True, slots=True)
class Rules:
    """How a check judges. `looks`: how often it may judge in all; each look has its share of the false alarms."""

    metrics: tuple[str, ...]
    effect: float
    looks: int
    across: bool = False
    false_alarms: float = FALSE_ALARMS

    @property
    def alpha(self) -> float:
        """Of one look (Bonferroni): looking twice and stopping at the first alarm keeps the chance."""
        return self.false_alarms / self.looks


def undisturbed(side: ComparedSide) -> ComparedSide:
    """The side without boots in which other processes used the measured cores; of a trial that fewer than three others
    measured, all of them.

    Who is left out depends on what others did, never on the numbers.
    """
    busy = _busy_boots(side)
    quiet: dict[str, set[str]] = {}
    for record in side.records:
        if isinstance(record.outcome, Measured) and record.boot not in busy:
            quiet.setdefault(record.id, set()).add(record.boot)
    kept = (r for r in side.records if r.boot not in busy or len(quiet.get(r.id, ())) < BOOTS_MIN)
    return ComparedSide(side.name, tuple(kept))


def neighbours_of(whole: ComparedSide, judged: ComparedSide, beside: ComparedSide) -> Neighbours:
    """What became of a side's disturbed boots, among those of the trials that the other side has (of all where it has none)."""
    shared = {record.id for record in whole.records} & {record.id for record in beside.records}
    busy = _busy_boots(whole)
    asked = {r.boot for r in whole.records if r.boot in busy and (not shared or r.id in shared)}
    counted = asked & {record.boot for record in judged.records if not shared or record.id in shared}
    return Neighbours(len(asked - counted), len(counted))


def _busy_boots(side: ComparedSide) -> set[str]:
    return {record.boot for record in side.records if _is_busy((record,))}


def undisturbed_rounds(base: ComparedSide, candidate: ComparedSide) -> tuple[ComparedSide, ComparedSide]:
    """Both sides without the rounds in which other processes used the measured cores; see `undisturbed`.

    A round is a boot of one side and the next boot, of the other side. What is left still takes turns, so it is judged in pairs: a drift
    of the machine hits both boots of a round alike. A boot whose neighbour gave no number is left out with it.
    """
    rounds = _rounds(base, candidate)
    quiet = {boot for of_round in rounds if not any(map(_is_busy, of_round)) for boot in _names(of_round)}
    if len(quiet) < 2 * BOOTS_MIN:
        return undisturbed(base), undisturbed(candidate)
    return _only(base, quiet), _only(candidate, quiet)


def count_rounds(base: ComparedSide, candidate: ComparedSide) -> int:
    """Rounds of two measured boots that were alone on their cores."""
    return sum(not any(map(_is_busy, of_round)) for of_round in _rounds(base, candidate))


_Boot = tuple[Record, ...]


def _rounds(base: ComparedSide, candidate: ComparedSide) -> list[tuple[_Boot, _Boot]]:
    boots: dict[tuple[int, str], list[Record]] = {}
    for number, side in enumerate((base, candidate)):
        for record in side.records:
            if isinstance(record.outcome, Measured):
                boots.setdefault((number, record.boot), []).append(record)
    waiting = sorted(boots, key=lambda key: min(record.started_at for record in boots[key]))
    rounds: list[tuple[_Boot, _Boot]] = []
    while len(waiting) > 1:
        first, second = waiting[:2]
        if first[0] == second[0]:
            waiting = waiting[1:]
            continue
        rounds.append((tuple(boots[first]), tuple(boots[second])))
        waiting = waiting[2:]
    return rounds


def _is_busy(boot: _Boot) -> bool:
    return any(isinstance(r.outcome, Measured) and is_disturbed(r.outcome.warnings) for r in boot)


def _names(of_round: tuple[_Boot, _Boot]) -> set[str]:
    return {boot[0].boot for boot in of_round}


def _only(side: ComparedSide, boots: set[str]) -> ComparedSide:
    return ComparedSide(side.name, tuple(record for record in side.records if record.boot in boots))


def judge(base: ComparedSide, candidate: ComparedSide, rules: Rules, pilot: int = 0) -> Judgement:
    """One look; `pilot`: boots of the candidate that an earlier look had, which decided how many there are now.

    Raises:
        InputError: nothing to compare.

    """
    widened = ApartOptions(widen=True)
    family = contrasts(base, candidate, rules.metrics, across=rules.across, pilot=pilot, apart=widened)
    verdicts = judge_family([one for _, one in family], rules.alpha)
    named = tuple(v.model_copy(update={"trial": pair.trial}) for v, (pair, _) in zip(verdicts, family, strict=True))
    wanted = _boots_wanted([one for _, one in family], rules)
    return Judgement(
        named,
        rules.effect,
        wanted,
        boots_had=max(one.n_candidate for _, one in family),
        interleaved=all(one.question.paired for _, one in family),
    )


def _boots_wanted(family: Sequence[BootComparison], rules: Rules) -> int | None:
    """Of the noisiest metric, at the level that Holm's strictest step has."""
    alpha, difference = rules.alpha / len(family), math.log1p(rules.effect)
    most = BOOTS_MIN
    for one in family:
        if not isinstance(one.answer, LogRatioEstimate):
            continue
        if one.question.apart:
            return None
        spread, paired = careful_spread(one.answer.spread, one.answer.df), one.question.paired
        first = one.question.pilot or one.n_candidate
        needed = boots_needed(spread, difference, paired=paired, alpha=alpha, power=POWER, pilot=first)
        if needed is None:
            return None
        most = max(most, needed)
    return min(most, BOOTS_MAX)
