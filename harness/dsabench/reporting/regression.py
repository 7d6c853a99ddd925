"""Has it become slower? A candidate's boots against a baseline's, with the boots that a verdict would still take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dsabench.model.outcome import Measured
from dsabench.model.record import Record
from dsabench.model.verdict import Verdict
from dsabench.probes.neighbours import is_disturbed
from dsabench.reporting.comparison import Asked, Side, contrasts
from dsabench.stats.compare import correct
from dsabench.stats.contrast import Contrast, Estimate
from dsabench.stats.power import BOOTS_MAX, boots_needed, boots_needed_beside, careful_spread

FALSE_ALARMS = 0.001
"""Chance that a check fails although nothing changed. At 5 % a nightly would cry wolf every third week."""
POWER = 0.95
"""With which the boots that are asked for show the effect."""

Standing = Literal["regression", "passed", "undecided"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One look at the boots."""

    verdicts: tuple[Verdict, ...]
    effect: float
    """The relative difference that must not be missed."""
    boots_wanted: int | None
    """Boots of the candidate at which the effect is detectable in every metric; None: no number of them is enough."""
    boots_had: int
    both_grow: bool = False

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
        worse = [verdict for verdict in self.verdicts if verdict.verdict == "worse"]
        if worse:
            named = ", ".join(f"{v.workload} {v.metric} {100 * (v.effect or 0.0):+.1f} %" for v in worse)
            return f"regression: {named}"
        opened = sum(map(self.is_open, self.verdicts))
        if not opened:
            return f"no regression: a difference of {self.effect:.0%} would have been seen in all {len(self.verdicts)} comparisons"
        more = self._more() if self.boots_wanted is not None else "no number of boots beside the baseline's decides it"
        if self.boots_wanted is None and self.both_grow:
            more = f"takes more than {BOOTS_MAX:,} boots a side with this spread"
        return f"inconclusive in {opened} of {len(self.verdicts)} comparisons at {self.effect:.0%}: {more}"

    def _more(self) -> str:
        assert self.boots_wanted is not None
        missing = max(self.boots_wanted - self.boots_had, 1)
        return f"needs {missing} more boot{'s' if missing > 1 else ''} ({self.boots_wanted} in all)"


@dataclass(frozen=True, slots=True)
class Rules:
    """How a check judges. `looks`: how often it may judge in all; each look has its share of the false alarms."""

    metrics: tuple[str, ...]
    effect: float
    looks: int
    across: bool = False
    false_alarms: float = FALSE_ALARMS
    both_grow: bool = False
    """Both sides are measured now; else the baseline keeps the boots that it has."""

    @property
    def alpha(self) -> float:
        """Of one look (Bonferroni): looking twice and stopping at the first alarm keeps the chance."""
        return self.false_alarms / self.looks


def undisturbed(side: Side) -> Side:
    """The side without boots in which other processes used the measured cores; all of it where fewer than two are left.

    Who is left out depends on what others did, never on the numbers.
    """
    busy = {
        record.boot
        for record in side.records
        if isinstance(record.outcome, Measured) and is_disturbed(record.outcome.warnings)
    }
    quiet = tuple(record for record in side.records if record.boot not in busy)
    return Side(side.name, quiet) if len({record.boot for record in quiet}) >= 2 else side


def undisturbed_rounds(base: Side, candidate: Side) -> tuple[Side, Side]:
    """Both sides without the rounds in which other processes used the measured cores; see `undisturbed`.

    A round is a boot of one side and the next boot, of the other side. What is left still takes turns, so it is judged in pairs: a drift
    of the machine hits both boots of a round alike. A boot whose neighbour gave no number is left out with it.
    """
    rounds = _rounds(base, candidate)
    quiet = {boot for of_round in rounds if not any(map(_is_busy, of_round)) for boot in _names(of_round)}
    if len(quiet) < 4:
        return undisturbed(base), undisturbed(candidate)
    return _only(base, quiet), _only(candidate, quiet)


def count_rounds(base: Side, candidate: Side) -> int:
    """Rounds of two measured boots that were alone on their cores."""
    return sum(not any(map(_is_busy, of_round)) for of_round in _rounds(base, candidate))


_Boot = tuple[Record, ...]


def _rounds(base: Side, candidate: Side) -> list[tuple[_Boot, _Boot]]:
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


def _only(side: Side, boots: set[str]) -> Side:
    return Side(side.name, tuple(record for record in side.records if record.boot in boots))


def judge(base: Side, candidate: Side, rules: Rules, pilot: int = 0) -> Judgement:
    """One look; `pilot`: boots of the candidate that an earlier look had, which decided how many there are now.

    Raises:
        InputError: nothing to compare.

    """
    asked = Asked(one_spread=True, pilot=(pilot if rules.both_grow else 0, pilot))
    family = contrasts(base, candidate, rules.metrics, across=rules.across, asked=asked)
    verdicts = correct([one for _, one in family], rules.alpha)
    named = tuple(v.model_copy(update={"trial": pair.trial}) for v, (pair, _) in zip(verdicts, family, strict=True))
    wanted = _boots_wanted([one for _, one in family], rules)
    return Judgement(named, rules.effect, wanted, max(one.n_candidate for _, one in family), rules.both_grow)


def _boots_wanted(family: Sequence[Contrast], rules: Rules) -> int | None:
    """Of the noisiest metric, at the level that Holm's strictest step has."""
    alpha, difference = rules.alpha / len(family), math.log1p(rules.effect)
    most = 2
    for one in family:
        if not isinstance(one.answer, Estimate):
            continue
        spread, paired = careful_spread(one.answer.spread, one.answer.df), one.question.paired
        first = max(one.question.pilot) or one.n_candidate
        if rules.both_grow or paired:
            needed = boots_needed(spread, difference, paired=paired, alpha=alpha, power=POWER, pilot=first)
        else:
            needed = boots_needed_beside(spread, difference, one.n_base, alpha=alpha, power=POWER, pilot=first)
        if needed is None:
            return None
        most = max(most, needed)
    return min(most, BOOTS_MAX)
