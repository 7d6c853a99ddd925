"""Compare two sides boot by boot: estimate, level, verdict.

Requests inside one boot are not independent, so a boot gives one value. Values are compared as logarithms: a
difference is then a ratio, and the spread of latencies and throughputs is nearly the same at every size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsabench.model.metrics import Direction
from dsabench.model.verdict import BOOTS_MIN, Verdict, VerdictWord
from dsabench.stats.distributions import t_above, t_critical
from dsabench.stats.power import BOOTS_MAX, boots_needed, detectable

Values = npt.NDArray[np.float64]
ALPHA = 0.05
_BEYOND = "how far beyond some values lie is not known"
_HUGE = 100.0
"""Hundredfold. The interval of three boots a side may reach astronomic numbers, which nobody wants to read."""


class BootValue(NamedTuple):
    """One measured value and its boot."""

    boot: str
    value: float
    beyond: int = 0
    """-1: it is this or less, 1: this or more, as of a search that ended at its lowest or highest load; 0: it is this."""


@dataclass(frozen=True, slots=True)
class ComparisonSpec:
    """The question of a comparison: metric, workload, and how to judge."""

    metric: str
    workload: str
    direction: Direction | None
    """None if neither direction is better."""
    paired: bool
    """The sides were measured in interleaved pairs: the i-th boots of both belong together."""
    equivalence: float
    """Relative difference that does not matter: an interval inside ± this is "no difference"."""
    apart: bool = False
    """The boots did not take turns; see `stats.occasions`. More boots of these occasions decide nothing."""
    least: int = BOOTS_MIN
    """Boots a side that a verdict takes."""
    pilot: int = 0
    """Of a paired comparison: number of first pairs whose spread decided how many there are.

    They count for the means, not for the spread: boots that happened to agree ask for few more, and would make the
    spread too small. Mean and spread of normal values are independent, so the t distribution holds (Stein 1945;
    Wittes et al. 1999).
    """


@dataclass(frozen=True, slots=True)
class LogRatioEstimate:
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
class DirectVerdict:
    """A verdict without statistics: none is needed, or none is possible."""

    verdict: VerdictWord
    reason: str
    effect: float | None = None
    boots_needed: int | None = None
    """As of a `Verdict`."""


@dataclass(frozen=True, slots=True)
class BootComparison:
    """A comparison before a confidence level is chosen; see `verdict_at`."""

    question: ComparisonSpec
    n_base: int
    n_candidate: int
    answer: LogRatioEstimate | DirectVerdict
    note: str = ""
    """What the reader of the verdict should know."""
    may_be_less: bool = False
    """Whether the ratio may be below its interval, because values of boots bound it alone."""
    may_be_more: bool = False


def compare_boots(
    question: ComparisonSpec, base: Sequence[BootValue], candidate: Sequence[BootValue], note: str = ""
) -> BootComparison:
    """Average within each boot, then estimate: paired t for pairs, Welch otherwise.

    Args:
        question: what is compared, and how.
        base: values of the base; of a paired comparison in the order of the pairs.
        candidate: values of the candidate, in the same order.
        note: what the reader of the verdict should know about these boots.

    """
    left, right = _by_boot(base), _by_boot(candidate)
    judged = BootComparison(question, len(left), len(right), DirectVerdict("no difference", "", 0.0), note)
    judged = replace(judged, may_be_less=_is_beyond(base, 1, candidate), may_be_more=_is_beyond(base, -1, candidate))
    if base and Counter(base) == Counter(candidate):
        return replace(judged, answer=DirectVerdict("no difference", "both sides are the same measurements", 0.0))
    if problem := _obstacle(question, left, right):
        needed = question.least if min(len(left), len(right)) < question.least else None
        return replace(judged, answer=DirectVerdict("inconclusive", problem, _observed(left, right), needed))
    x, y = (np.array(list(side.values()), dtype=np.float64) for side in (left, right))
    if np.ptp(np.concatenate((x, y))) == 0.0:
        same = DirectVerdict("no difference", f"every boot gave {x[0]:g}", 0.0)
        if judged.may_be_less or judged.may_be_more:
            same = replace(same, verdict="inconclusive", reason=f"{same.reason}, and {_BEYOND}")
        return replace(judged, answer=same)
    if (bad := int(np.sum(x <= 0.0) + np.sum(y <= 0.0))) > 0:
        reason = f"{bad} of {x.size + y.size} boots gave a value that is not positive: there is no ratio to judge"
        return replace(judged, answer=DirectVerdict("inconclusive", reason))
    if not question.paired:
        return replace(judged, answer=_welch(np.log(x), np.log(y)))
    pairs = min(x.size, y.size)
    left_out = x.size + y.size - 2 * pairs
    if left_out:
        note = f"{left_out} boot{'s' * (left_out > 1)} without a partner left out"
    return replace(judged, answer=_paired(np.log(x[:pairs]), np.log(y[:pairs]), question.pilot), note=note)


def relative(log_ratio: float) -> float:
    """Convert a log ratio to a relative difference: 0.05 is 5 % more than the base. Limited to e^700."""
    return math.expm1(min(log_ratio, 700.0))


def _observed(base: dict[str, float], candidate: dict[str, float]) -> float | None:
    """Ratio of the geometric means minus 1; None unless both sides have only positive values."""
    if not base or not candidate or min(*base.values(), *candidate.values()) <= 0.0:
        return None
    means = [math.fsum(map(math.log, side.values())) / len(side) for side in (candidate, base)]
    return relative(means[0] - means[1])


def _is_beyond(base: Sequence[BootValue], sign: int, candidate: Sequence[BootValue]) -> bool:
    """Whether values of the base lie beyond what was measured in this direction, or those of the candidate in the other."""
    return any(one.beyond == sign for one in base) or any(one.beyond == -sign for one in candidate)


def _by_boot(side: Sequence[BootValue]) -> dict[str, float]:
    """Boot → mean of its values, in order of first appearance."""
    values: dict[str, list[float]] = {}
    for one in side:
        values.setdefault(one.boot, []).append(one.value)
    return {boot: math.fsum(of_boot) / len(of_boot) for boot, of_boot in values.items()}


def _obstacle(question: ComparisonSpec, base: dict[str, float], candidate: dict[str, float]) -> str | None:
    shared = len(base.keys() & candidate.keys())
    if shared and not (question.paired and list(base) == list(candidate)):
        return f"{shared} boots are on both sides, so the sides are not independent"
    if min(len(base), len(candidate)) < question.least:
        return f"{len(base)} and {len(candidate)} boots: a verdict takes {question.least} a side"
    later = min(len(base), len(candidate)) - question.pilot
    if later < BOOTS_MIN:
        return f"{max(later, 0)} boots a side after those that decided their number: a verdict takes {BOOTS_MIN}"
    return None


def _paired(base: Values, candidate: Values, pilot: int) -> LogRatioEstimate:
    differences = candidate - base
    later = differences[pilot:]
    spread = float(np.std(later, ddof=1))
    return LogRatioEstimate(float(np.mean(differences)), spread / math.sqrt(differences.size), later.size - 1.0, spread)


def _welch(base: Values, candidate: Values) -> LogRatioEstimate:
    """Welch's interval: no equal variances assumed; degrees of freedom after Satterthwaite."""
    sides = (base, candidate)
    variances = [float(np.var(side, ddof=1)) for side in sides]
    parts = [variance / side.size for variance, side in zip(variances, sides, strict=True)]
    total = sum(parts)
    weights = sum(part**2 / (side.size - 1) for part, side in zip(parts, sides, strict=True))
    df = total**2 / weights if weights > 0.0 else base.size + candidate.size - 2.0
    difference = float(np.mean(candidate) - np.mean(base))
    return LogRatioEstimate(difference, math.sqrt(total), df, math.sqrt(sum(variances) / 2))


def judge_family(family: Sequence[BootComparison], alpha: float = ALPHA) -> tuple[Verdict, ...]:
    """Judge comparisons that are read together: the chance of any false better or worse is at most `alpha`.

    Each interval has the level at which Holm's procedure judged its comparison, so it excludes 0 exactly if Holm
    rejects. They are not simultaneous intervals.
    """
    tested = {i: member.answer.p for i, member in enumerate(family) if isinstance(member.answer, LogRatioEstimate)}
    levels = dict(zip(tested, holm(tuple(tested.values()), alpha), strict=True))
    return tuple(verdict_at(member, levels.get(i, alpha)) for i, member in enumerate(family))


def holm(p_values: Sequence[float], alpha: float = ALPHA) -> tuple[float, ...]:
    """The level at which Holm's step-down procedure (1979) judges each p value: rejected if p ≤ level.

    The r-th smallest of m is compared with alpha / (m - r + 1). After the first that is not rejected, all others
    get that level.
    """
    levels = [0.0] * len(p_values)
    level, rejecting = alpha, True
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if rejecting:
            level = alpha / (len(p_values) - rank)
            rejecting = p_values[i] <= level
        levels[i] = level
    return tuple(levels)


def verdict_at(member: BootComparison, alpha: float = ALPHA) -> Verdict:
    """Judge at a confidence level.

    "no difference": the interval lies inside ± equivalence, even if it excludes 0. "better", "worse" ("differs" if
    neither direction is better): the interval excludes 0 and reaches beyond ± equivalence. "inconclusive": anything
    else. An interval that boots bound alone is open to that side.
    """
    question, answer = member.question, member.answer
    sides = {"n_base": member.n_base, "n_candidate": member.n_candidate}
    if not isinstance(answer, LogRatioEstimate):
        return Verdict(
            metric=question.metric,
            workload=question.workload,
            verdict=answer.verdict,
            effect=answer.effect,
            boots_needed=answer.boots_needed,
            reason=f"{answer.reason}; {member.note}" if member.note else answer.reason,
            **sides,
        )
    half_width = t_critical(alpha / 2, answer.df) * answer.standard_error
    low, high = (relative(answer.difference + side * half_width) for side in (-1, 1))
    word = _word(question, -math.inf if member.may_be_less else low, math.inf if member.may_be_more else high)
    least, most = " or less" * member.may_be_less, " or more" * member.may_be_more
    reason = f"the change is between {_percent(low)}{least} and {_percent(high)}{most} ({100 * (1 - alpha):.3g} % confidence)"
    if word == "no difference":
        reason += f", within ±{100 * question.equivalence:g} %"
    needed: int | None = None
    if word == "inconclusive" and question.apart:
        reason += "; boots in turns decide it"
    elif word == "inconclusive" and _word(question, low, high) != word:
        reason += f"; {_BEYOND}"
    elif word == "inconclusive":
        wanted, needed = _boots_to_decide(member, answer, alpha)
        many = f"more than {BOOTS_MAX}" if needed is None else f"about {needed}"
        reason += f"; {many} boots per side would show a change of {_percent(relative(wanted))}"
    return Verdict(
        metric=question.metric,
        workload=question.workload,
        verdict=word,
        effect=relative(answer.difference),
        ci_low=low,
        ci_high=high,
        mde=relative(detectable(answer.standard_error, answer.df, alpha)),
        boots_needed=needed,
        reason=f"{reason}; {member.note}" if member.note else reason,
        **sides,
    )


def _word(question: ComparisonSpec, low: float, high: float) -> VerdictWord:
    if -question.equivalence <= low and high <= question.equivalence:
        return "no difference"
    if low <= 0.0 <= high:
        return "inconclusive"
    if question.direction is None:
        return "differs"
    return "better" if (low > 0.0) == (question.direction == "maximize") else "worse"


def _percent(value: float) -> str:
    if value > _HUGE:
        return f"more than +{100 * _HUGE:,.0f} %"
    return f"{100 * value:+,.1f} %"


def _boots_to_decide(member: BootComparison, answer: LogRatioEstimate, alpha: float) -> tuple[float, int | None]:
    """The log ratio that more boots would show, with the sign of the effect, and how many; None above `BOOTS_MAX`."""
    # A ratio of 0.74 is 26 % less, but its inverse is 35 % more, so the sign matters.
    least = math.log1p(math.copysign(member.question.equivalence, answer.difference))
    wanted = max(answer.difference, least, key=abs)
    boots = boots_needed(answer.spread, abs(wanted), paired=member.question.paired, alpha=alpha)
    return wanted, None if boots is None else max(boots, min(member.n_base, member.n_candidate) + 1)
