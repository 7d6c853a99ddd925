"""Compare two sides whose boots lie apart: how far the level of one setting moves from one occasion to another.

Boots of one occasion share what drifts: heat, neighbours, time of day. Two sides that took turns share it too. Two sides that did
not may differ by the drift alone, and no number of boots in one occasion tells how much. Other occasions of the same setting do
(A/A history).

The drift may go on and on, so only occasions at least as far apart as the compared ones count. Of those, one after another, each
difference of neighbours is one observation. Their mean square is unbiased for independent levels and for a random walk alike.
Neighbouring differences share an occasion, so k of them count for 2k² / (3k - 1) degrees of freedom (von Neumann 1941).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from dsabench.stats.compare import (
    BootComparison,
    BootValue,
    ComparisonSpec,
    DirectVerdict,
    LogRatioEstimate,
    compare_boots,
)

OCCASION_PAUSE_S = 1800.0
"""Seconds without a boot of a side that begin a new occasion."""


class TimedBoot(NamedTuple):
    """One boot's value, and when it was measured (seconds of any one clock)."""

    boot: str
    value: float
    start_s: float
    end_s: float
    beyond: int = 0
    """As of a `BootValue`."""


Occasion = tuple[TimedBoot, ...]
"""Boots of one side without a long pause between them, in order."""


@dataclass(frozen=True, slots=True)
class OccasionSpread:
    """Standard deviation of the log ratio of two occasions of one setting."""

    spread: float
    df: float
    differences: int
    """Of how many it was measured."""


def occasions_of(boots: Sequence[TimedBoot]) -> list[Occasion]:
    """Cut where nothing was measured for a while."""
    found: list[list[TimedBoot]] = []
    for boot in sorted(boots, key=lambda one: one.start_s):
        if found and boot.start_s - max(one.end_s for one in found[-1]) <= OCCASION_PAUSE_S:
            found[-1].append(boot)
        else:
            found.append([boot])
    return list(map(tuple, found))


def spread_between_occasions(
    histories: Sequence[Sequence[Occasion]], apart_s: float, boots: int
) -> OccasionSpread | None:
    """From occasions of one setting each, those at least `apart_s` apart, by their first `boots` boots; None where there are
    no two.
    """
    squares: list[float] = []
    df = 0.0
    for history in histories:
        chain = list(_far_apart(history, apart_s))
        found = [(_level(later[:boots]) - _level(sooner[:boots])) ** 2 for sooner, later in pairwise(chain)]
        squares += found
        df += 2.0 * len(found) ** 2 / (3.0 * len(found) - 1.0)
    return OccasionSpread(math.sqrt(math.fsum(squares) / len(squares)), df, len(squares)) if squares else None


def tells_drift(history: Sequence[Occasion], at_s: float) -> bool:
    """Whether two of these occasions are as far apart as `at_s` is from the last of them."""
    return bool(history) and len(list(_far_apart(history, abs(at_s - _middle_s(history[-1]))))) > 1


def _far_apart(history: Sequence[Occasion], apart_s: float) -> Iterator[Occasion]:
    last: Occasion | None = None
    for occasion in history:
        if last is None or _middle_s(occasion) - _middle_s(last) >= apart_s:
            last = occasion
            yield occasion


def _middle_s(occasion: Occasion) -> float:
    return (occasion[0].start_s + occasion[-1].end_s) / 2.0


def _level(occasion: Occasion) -> float:
    return math.fsum(math.log(boot.value) for boot in occasion) / len(occasion)


@dataclass(frozen=True, slots=True)
class ApartOptions:
    """What is made of boots that did not take turns."""

    widen: bool = False
    """Widen the interval by the spread between occasions. Else there is no verdict."""
    stated: float | None = None
    """The spread of the level between two occasions, as a ratio's logarithm, where the user states it; else it is measured."""


NO_VERDICT = ApartOptions()


def compare_apart(
    question: ComparisonSpec, base: Sequence[TimedBoot], candidate: Sequence[TimedBoot], options: ApartOptions
) -> BootComparison:
    """Compare the two occasions that lie nearest to each other; the others are history.

    Without `widen`, or without history, the answer is "inconclusive" and says why.
    """
    plain = replace(question, paired=False, apart=True)
    direct = compare_boots(plain, _values(base), _values(candidate))
    settled = isinstance(direct.answer, DirectVerdict) and direct.answer.verdict != "inconclusive"
    if settled or min((boot.value for boot in (*base, *candidate)), default=0.0) <= 0.0:
        return direct
    histories = (occasions_of(base), occasions_of(candidate))
    pairs = [(sooner, later) for sooner in histories[0] for later in histories[1]]
    nearest = min(pairs, key=lambda pair: (_between_s(*pair), -_middle_s(pair[1])))
    note = f"the boots did not take turns ({_said(_between_s(*nearest))} apart)"
    if not options.widen:
        return _no_verdict(direct, nearest, f"{note}, so drift may be the whole difference")
    if options.stated is not None:
        return _as_stated(compare_boots(plain, _values(nearest[0]), _values(nearest[1])), options.stated, note)
    boots = min(map(len, nearest))
    known = spread_between_occasions(histories, _between_s(*nearest), boots)
    if known is None:
        reason = f"{note}, and no two occasions of one setting are as far apart, which would tell the drift"
        return _no_verdict(direct, nearest, reason)
    left, right = (_level(occasion[:boots]) for occasion in nearest)
    many = f"{known.differences} difference{'s' * (known.differences > 1)} between occasions of one setting"
    answer = LogRatioEstimate(right - left, known.spread, known.df, known.spread)
    note += f": judged by {many}, which spread by {100 * known.spread:.3g} %"
    return replace(direct, answer=answer, note=note, n_base=boots, n_candidate=boots)


def _no_verdict(direct: BootComparison, nearest: tuple[Occasion, Occasion], reason: str) -> BootComparison:
    left, right = map(_level, nearest)
    return replace(direct, answer=DirectVerdict("inconclusive", reason, math.expm1(min(right - left, 700.0))))


def _as_stated(within: BootComparison, stated: float, note: str) -> BootComparison:
    """Both occasions by themselves, widened. What is stated is exact; the boots' own part has the degrees of freedom that it
    has (Satterthwaite).
    """
    if not isinstance(within.answer, LogRatioEstimate):
        return within
    of_boots = within.answer.standard_error
    error = math.hypot(of_boots, stated)
    df = within.answer.df * (error / of_boots) ** 4 if of_boots else _EXACT
    answer = replace(within.answer, standard_error=error, df=min(df, _EXACT))
    return replace(within, answer=answer, note=f"{note}: widened by {100 * stated:.3g} % between occasions, as stated")


_EXACT = 1e6
"""Degrees of freedom at which t is normal."""


def _between_s(left: Occasion, right: Occasion) -> float:
    return abs(_middle_s(right) - _middle_s(left))


def _values(boots: Sequence[TimedBoot]) -> list[BootValue]:
    return [BootValue(one.boot, one.value, one.beyond) for one in boots]


def _said(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
