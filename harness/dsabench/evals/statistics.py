"""Statistics of scores: means with honest intervals, pass@k, majority@k, and whether a candidate is less accurate than a base.

Answers to one question are not independent, so the question is the unit: repeats narrow the noise of sampling, never
the luck of which questions are in the set (Miller 2024, "Adding Error Bars to Evals", §3.1).
Two sides answered the same questions: differences are taken question by question, which removes that some questions are
harder than others. Scores are shares of 1, so a margin of 0.01 is one point.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import variance
from typing import Literal

import numpy as np

from dsabench.stats.distributions import fair_coin_p, normal_below, normal_critical, t_above, t_critical
from dsabench.stats.intervals import Interval, bootstrap, wilson
from dsabench.stats.power import POWER

Scores = Sequence[Sequence[float]]
"""For each question, the scores of its repeats."""


@dataclass(frozen=True, slots=True)
class MeanScore:
    """A mean over questions."""

    value: float
    standard_error: float | None
    """Clustered by question; None from one question."""
    interval: Interval
    questions: int


def mean_score(scores: Scores, *, confidence: float = 0.95, seed: int = 0) -> MeanScore:
    """Mean of the questions' means.

    With one repeat the interval is Wilson's (1927), which stays inside [0, 1] and has a width at 0 and 1 too; with
    several it is the bootstrap's over whole questions, or Wilson's where every question gave the same.
    """
    means = [math.fsum(of_question) / len(of_question) for of_question in scores]
    if any(len(of_question) > 1 for of_question in scores):
        return mean_of_questions(means, confidence=confidence, seed=seed)
    value, error = _mean_and_error(means)
    return MeanScore(value, error, _wilson(value, len(means), confidence), len(means))


def mean_of_questions(values: Sequence[float], *, confidence: float = 0.95, seed: int = 0) -> MeanScore:
    """Mean of one value in [0, 1] for each question; interval of the bootstrap over questions, or Wilson's (see above)."""
    value, error = _mean_and_error(values)
    drawn = bootstrap(values, _mean, seed=seed, confidence=confidence) if error else None
    return MeanScore(value, error, drawn or _wilson(value, len(values), confidence), len(values))


def _mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    data = np.array(values, dtype=np.float64)
    return float(np.mean(data)), float(np.std(data, ddof=1)) / math.sqrt(data.size) if data.size > 1 else None


def _wilson(share: float, count: int, confidence: float) -> Interval:
    interval = wilson(share * count, count, confidence)
    assert interval is not None  # of no question there is no mean either
    return interval


def pass_at_k(scores: Sequence[float], k: int) -> float:
    """Chance that one of k answers to a question is right, unbiased from n ≥ k answers (Chen et al. 2021, eq. 1)."""
    drawn, right = len(scores), round(sum(scores))
    return 1.0 - math.comb(drawn - right, k) / math.comb(drawn, k)


def majority(answers: Sequence[str | None], scores: Sequence[float]) -> float:
    """Score of a question's commonest answer, NeMo-Skills' way (metrics/base.py, `_compute_majority_at_k`).

    No answer has no vote. An answer counts together with its score, so spellings are told apart; where several are
    equally common, the score is the mean of theirs. Without any answer it is 0.
    """
    votes = Counter((answer, score) for answer, score in zip(answers, scores, strict=True) if answer is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    commonest = [score for (_, score), count in votes.items() if count == most]
    return sum(commonest) / len(commonest)


def spread_of_runs(scores: Scores) -> float | None:
    """Standard deviation of the passes' means: the figure behind ± in NeMo-Skills' table; None from one pass.

    It tells how much two passes differ, not how well the score is known.
    """
    passes = np.array(scores, dtype=np.float64).mean(axis=0)
    return float(np.std(passes, ddof=1)) if passes.size > 1 else None


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(np.mean(values))


Answer = Literal["yes", "no", "inconclusive"]
ALPHA = 0.05
REPEATS_MAX = 1000


@dataclass(frozen=True, slots=True)
class NonInferiority:
    """The answer to "not less accurate by more than the margin?"."""

    answer: Answer
    difference: float
    """Candidate less base."""
    interval: Interval
    """90 %: each of its ends is a one-sided test at the 5 % level."""
    worse_p: float
    """Two-sided p value of "no difference at all"."""
    detectable: float
    """Smallest true loss that as much data shows to be one, with 80 % power."""
    more_repeats: int | None
    """Further repeats a side that would settle an inconclusive answer, were there no true loss; None where none would."""


def non_inferiority(base: Scores, candidate: Scores, margin: float) -> NonInferiority:
    """Paired t interval of the questions' differences; both sides list the same questions in the same order.

    Equal scores have no spread, yet twenty equal questions prove little: were the loss as large as the margin, single
    questions would differ, and the differences would have a variance of at least margin / repeats − margin². Less than
    that is never assumed (for one repeat without any difference this is close to Tango's score interval, 1998).

    "no" takes both: the loss is larger than the margin, and it is no chance at the 5 % level.
    """
    differences = _means(candidate) - _means(base)
    count, repeats = differences.size, min(_repeats(base), _repeats(candidate))
    difference = float(np.mean(differences))
    sampled = float(np.var(differences, ddof=1)) if count > 1 else 1.0
    error = math.sqrt(max(sampled, _least_variance(margin, repeats)) / count)
    df = max(count - 1, 1)
    reach = t_critical(ALPHA, df) * error
    interval = Interval(difference - reach, difference + reach)
    p = 2 * t_above(abs(difference) / error, df)
    answer: Answer = "inconclusive"
    if interval.low > -margin:
        answer = "yes"
    elif difference < -margin and p <= ALPHA:
        answer = "no"
    more = _more_repeats(base, candidate, sampled, margin) if answer == "inconclusive" else None
    factor = t_critical(ALPHA, df) + t_critical(1 - POWER, df)
    return NonInferiority(answer, difference, interval, p, factor * error, more)


def mcnemar(base: Sequence[float], candidate: Sequence[float]) -> float:
    """Exact two-sided p value of paired right-or-wrong scores (McNemar 1947): only questions that differ speak."""
    pairs = list(zip(base, candidate, strict=True))
    lost, gained = sum(left > right for left, right in pairs), sum(left < right for left, right in pairs)
    return fair_coin_p(lost, gained)


def paired_bootstrap(base: Scores, candidate: Scores, *, seed: int = 0) -> Interval | None:
    """95 % interval of the mean difference, drawing whole questions; None from fewer than two."""
    differences = _means(candidate) - _means(base)
    return bootstrap(differences.tolist(), lambda drawn: float(np.mean(drawn)), seed=seed)


def _means(scores: Scores) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([math.fsum(of_question) / len(of_question) for of_question in scores], dtype=np.float64)


def _repeats(scores: Scores) -> int:
    return min(map(len, scores))


def _least_variance(margin: float, repeats: int) -> float:
    """Of differences in steps of 1 / repeats whose mean is the margin."""
    return max(margin / repeats - margin**2, 0.0)


def acceptance(questions: int, repeats: int, margin: float, noise: float) -> float:
    """Chance that `non_inferiority` says "yes" of a candidate with no true loss, before anything is measured.

    Args:
        questions: both sides answer the same.
        repeats: answers of each side to each question.
        margin: largest accepted loss.
        noise: variance inside a question of the difference between one answer of each side.

    """
    expected = max(noise / repeats, _least_variance(margin, repeats))
    if questions < 2 or expected == 0.0:
        return 0.0
    return normal_below(margin / math.sqrt(expected / questions) - t_critical(ALPHA, questions - 1))


def decidable_margin(questions: int, variance: float) -> float:
    """Smallest margin with which a true difference of 0 gives "yes" with 80 % power; `variance`: of the questions' differences."""
    reach = t_critical(ALPHA, max(questions - 1, 1)) + normal_critical(1 - POWER)
    return reach * math.sqrt(variance / questions)


def fewest_repeats(questions: int, margin: float, noise: float, *, lasting: float = 0.0, beyond: int = 0) -> int | None:
    """Fewest repeats, more than `beyond`, that decide the margin; None where none do.

    Repeats shrink the noise inside a question; the variance of what questions truly differ by (`lasting`) stays.
    """
    for repeats in range(beyond + 1, REPEATS_MAX + 1):
        if decidable_margin(questions, max(lasting + noise / repeats, _least_variance(margin, repeats))) <= margin:
            return repeats
    return None


def _more_repeats(base: Scores, candidate: Scores, sampled: float, margin: float) -> int | None:
    """Fewest repeats beyond those at hand.

    With one repeat noise and lasting differences cannot be told apart, and all is taken for noise: the number is then the least.
    """
    have = min(_repeats(base), _repeats(candidate))
    inside = [_inside(side) for side in (base, candidate)]
    noise = sampled * have if None in inside else sum(one for one in inside if one is not None)
    found = fewest_repeats(len(base), margin, noise, lasting=max(0.0, sampled - noise / have), beyond=have)
    return None if found is None else found - have


def _inside(scores: Scores) -> float | None:
    """Variance of one answer's score inside a question, mean over the questions; None from single answers."""
    if _repeats(scores) < 2:
        return None
    return math.fsum(variance(of_question) for of_question in scores) / len(scores)
