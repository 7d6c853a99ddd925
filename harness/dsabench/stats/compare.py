"""Candidate against base: from boots to a verdict, alone or in a family."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dsabench.model.verdict import Verdict, VerdictWord
from dsabench.stats.contrast import BootValue, Contrast, Direction, Estimate, Question, contrast, relative
from dsabench.stats.power import BOOTS_MAX, boots_needed, detectable
from dsabench.stats.tails import t_critical

ALPHA = 0.05


def compare(
    metric: str,
    workload: str,
    base: Sequence[BootValue],
    candidate: Sequence[BootValue],
    *,
    direction: Direction | None,
    paired: bool,
    equivalence: float = 0.01,
) -> Verdict:
    """One comparison by itself, at the 5 % level. A family goes through `contrast` and `correct` instead."""
    return judge(contrast(Question(metric, workload, direction, paired, equivalence), base, candidate))


def correct(family: Sequence[Contrast], alpha: float = ALPHA) -> tuple[Verdict, ...]:
    """Verdicts of comparisons that are read together: at most `alpha` chance of any false better or worse among them.

    Each interval is drawn at the level at which Holm's procedure judged its comparison, so that it excludes 0 exactly
    where Holm rejects. They are not simultaneous intervals.
    """
    tested = {i: member.answer.p for i, member in enumerate(family) if isinstance(member.answer, Estimate)}
    levels = dict(zip(tested, holm(tuple(tested.values()), alpha), strict=True))
    return tuple(judge(member, levels.get(i, alpha)) for i, member in enumerate(family))


def holm(p_values: Sequence[float], alpha: float = ALPHA) -> tuple[float, ...]:
    """The level at which Holm's step-down procedure (1979) judges each p value: rejected where p ≤ level.

    The r-th smallest of m is held against alpha / (m - r + 1); from the first that passes it, all keep that level.
    """
    levels = [0.0] * len(p_values)
    level, rejecting = alpha, True
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if rejecting:
            level = alpha / (len(p_values) - rank)
            rejecting = p_values[i] <= level
        levels[i] = level
    return tuple(levels)


def judge(member: Contrast, alpha: float = ALPHA) -> Verdict:
    """The verdict at a level.

    "no difference": the interval lies inside ± equivalence, even where it excludes 0; so a minimum effect applies.
    "better" / "worse" ("differs" where neither direction is better): it excludes 0 and reaches beyond the equivalence
    margin. "inconclusive": anything else.
    """
    question, answer = member.question, member.answer
    sides = {"n_base": member.n_base, "n_candidate": member.n_candidate}
    if not isinstance(answer, Estimate):
        return Verdict(
            metric=question.metric,
            workload=question.workload,
            verdict=answer.verdict,
            effect=answer.effect,
            reason=answer.reason,
            **sides,
        )
    half_width = t_critical(alpha / 2, answer.df) * answer.standard_error
    low, high = (relative(answer.difference + side * half_width) for side in (-1, 1))
    word = _word(question, low, high)
    reason = _reason(member, answer, word, alpha)
    return Verdict(
        metric=question.metric,
        workload=question.workload,
        verdict=word,
        effect=relative(answer.difference),
        ci_low=low,
        ci_high=high,
        mde=relative(detectable(answer.standard_error, answer.df, alpha)),
        reason=f"{reason}; {member.note}" if member.note else reason,
        **sides,
    )


def _word(question: Question, low: float, high: float) -> VerdictWord:
    if -question.equivalence <= low and high <= question.equivalence:
        return "no difference"
    if low <= 0.0 <= high:
        return "inconclusive"
    if question.direction is None:
        return "differs"
    return "better" if (low > 0.0) == (question.direction == "maximize") else "worse"


def _reason(member: Contrast, answer: Estimate, word: VerdictWord, alpha: float) -> str:
    interval, margin = f"the {100 * (1 - alpha):.3g} % interval", f"±{100 * member.question.equivalence:.3g} %"
    if word == "no difference":
        return f"{interval} lies inside {margin}"
    if word != "inconclusive":
        return f"{interval} excludes 0 and is not confined to {margin}"
    least = math.log1p(math.copysign(member.question.equivalence, answer.difference))
    wanted = max(answer.difference, least, key=abs)
    boots = boots_needed(answer.spread, abs(wanted), paired=member.question.paired, alpha=alpha)
    have = min(member.n_base, member.n_candidate)
    many = f"more than {BOOTS_MAX}" if boots is None else f"about {max(boots, have + 1)}"
    # The effect's own sign: a ratio of 0.74 is 26 % less, its inverse 35 % more.
    return f"{interval} holds 0 and reaches beyond {margin}; a difference of {100 * relative(wanted):+.1f} % takes {many} boots a side"
