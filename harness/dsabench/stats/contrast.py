"""Two sides put against each other, before a level of significance is chosen.

Requests inside one boot are not independent, so a boot gives one value. Values are compared as logarithms: a
difference is then a ratio, and the spread of latencies and throughputs is nearly the same at every size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dsabench.model.verdict import VerdictWord
from dsabench.stats.tails import t_above

Direction = Literal["maximize", "minimize"]
Values = npt.NDArray[np.float64]


class BootValue(NamedTuple):
    """One measured value and the boot that it was measured in."""

    boot: str
    value: float


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of two sides."""

    metric: str
    workload: str
    direction: Direction | None
    """None where neither is better."""
    paired: bool
    """The sides were measured in interleaved pairs; the i-th boots of both belong together."""
    equivalence: float
    """Relative difference that does not matter: an interval inside ± this is "no difference"."""
    one_spread: bool = False
    """Unpaired sides are taken to spread alike, which holds where nothing changed: Student's t instead of Welch's.

    Welch's interval is too narrow at levels of 1 in 1,000 where one side has few boots and the other many: 2 to 4 false alarms for each
    one allowed with 5 boots beside 20 or 40.
    """
    pilot: tuple[int, int] = (0, 0)
    """First boots of base and candidate whose spread decided how many boots there are.

    They count for the means, not for the spread: boots that happened to agree asked for few more, and would make the spread too
    small. Means and spread of normal values are independent, so the t distribution holds (Stein 1945; Wittes et al. 1999).
    """


@dataclass(frozen=True, slots=True)
class Estimate:
    """Log ratio of candidate to base. `spread` is the standard deviation of one pair's difference, or of one boot."""

    difference: float
    standard_error: float
    df: float
    spread: float

    @property
    def p(self) -> float:
        """Two-sided p value of "no difference"."""
        if self.standard_error == 0.0:
            return 1.0 if self.difference == 0.0 else 0.0
        return 2.0 * t_above(abs(self.difference) / self.standard_error, self.df)


@dataclass(frozen=True, slots=True)
class Settled:
    """A verdict that needs no statistics, or that none can give."""

    verdict: VerdictWord
    reason: str
    effect: float | None = None


@dataclass(frozen=True, slots=True)
class Contrast:
    """A question with what two sets of boots say to it. Its verdict depends on the level, see `compare.judge`."""

    question: Question
    n_base: int
    n_candidate: int
    answer: Estimate | Settled
    note: str = ""
    """What the reader of the verdict should know beside it."""


def contrast(question: Question, base: Sequence[BootValue], candidate: Sequence[BootValue]) -> Contrast:
    """Average inside each boot, then estimate: paired t where pairs are given, Welch otherwise."""
    left, right = _by_boot(base), _by_boot(candidate)
    judged = Contrast(question, len(left), len(right), Settled("no difference", "", 0.0))
    if base and Counter(base) == Counter(candidate):
        return replace(judged, answer=Settled("no difference", "both sides are the same measurements", 0.0))
    if problem := _obstacle(question, left, right):
        return replace(judged, answer=Settled("inconclusive", problem, _observed(left, right)))
    x, y = (np.array(list(side.values()), dtype=np.float64) for side in (left, right))
    if np.ptp(np.concatenate((x, y))) == 0.0:
        return replace(judged, answer=Settled("no difference", f"every boot gave {x[0]:g}", 0.0))
    if (bad := int(np.sum(x <= 0.0) + np.sum(y <= 0.0))) > 0:
        reason = f"{bad} of {x.size + y.size} boots gave a value that is not positive: there is no ratio to judge"
        return replace(judged, answer=Settled("inconclusive", reason))
    if not question.paired:
        estimate = _student if question.one_spread else _welch
        return replace(judged, answer=estimate(np.log(x), np.log(y), question.pilot))
    pairs = min(x.size, y.size)
    left_out = x.size + y.size - 2 * pairs
    note = f"{left_out} boot{'s' * (left_out > 1)} without a partner left out" if left_out else ""
    return replace(judged, answer=_paired(np.log(x[:pairs]), np.log(y[:pairs]), max(question.pilot)), note=note)


def relative(log_ratio: float) -> float:
    """A log ratio as a relative difference: 0.05 is 5 % more than the base. Above e^700 it stays there."""
    return math.expm1(min(log_ratio, 700.0))


def _observed(base: dict[str, float], candidate: dict[str, float]) -> float | None:
    """The ratio of the geometric means less 1, where both sides have positive values only."""
    if not base or not candidate or min(*base.values(), *candidate.values()) <= 0.0:
        return None
    means = [math.fsum(map(math.log, side.values())) / len(side) for side in (candidate, base)]
    return relative(means[0] - means[1])


def _by_boot(side: Sequence[BootValue]) -> dict[str, float]:
    """Boot → mean of its values, in the order in which the boots first appear."""
    values: dict[str, list[float]] = {}
    for boot, value in side:
        values.setdefault(boot, []).append(value)
    return {boot: math.fsum(of_boot) / len(of_boot) for boot, of_boot in values.items()}


def _obstacle(question: Question, base: dict[str, float], candidate: dict[str, float]) -> str | None:
    shared = len(base.keys() & candidate.keys())
    if shared and not (question.paired and list(base) == list(candidate)):
        return f"{shared} boots are on both sides, so the sides are not independent"
    if min(len(base), len(candidate)) < 2:
        return f"{len(base)} and {len(candidate)} boots: the spread between boots shows from two a side"
    later = min(len(base) - question.pilot[0], len(candidate) - question.pilot[1])
    if later < 2:
        return f"{max(later, 0)} boots a side after those that decided their number: the spread shows from two"
    return None


def _paired(base: Values, candidate: Values, pilot: int) -> Estimate:
    differences = candidate - base
    later = differences[pilot:]
    spread = float(np.std(later, ddof=1))
    return Estimate(float(np.mean(differences)), spread / math.sqrt(differences.size), later.size - 1.0, spread)


def _student(base: Values, candidate: Values, pilot: tuple[int, int]) -> Estimate:
    """Student's interval: one variance, from both sides."""
    later = [side[first:] for side, first in zip((base, candidate), pilot, strict=True)]
    df = later[0].size + later[1].size - 2.0
    spread = math.sqrt(sum(float(np.var(side)) * side.size for side in later) / df)
    difference = float(np.mean(candidate) - np.mean(base))
    return Estimate(difference, spread * math.sqrt(1.0 / base.size + 1.0 / candidate.size), df, spread)


def _welch(base: Values, candidate: Values, pilot: tuple[int, int]) -> Estimate:
    """Welch's interval: no equal variances assumed; degrees of freedom after Satterthwaite."""
    later = [side[first:] for side, first in zip((base, candidate), pilot, strict=True)]
    variances = [float(np.var(side, ddof=1)) for side in later]
    parts = [variance / side.size for variance, side in zip(variances, (base, candidate), strict=True)]
    total = sum(parts)
    weights = sum(part**2 / (side.size - 1) for part, side in zip(parts, later, strict=True))
    df = total**2 / weights if weights > 0.0 else later[0].size + later[1].size - 2.0
    difference = float(np.mean(candidate) - np.mean(base))
    return Estimate(difference, math.sqrt(total), df, math.sqrt(sum(variances) / 2))
