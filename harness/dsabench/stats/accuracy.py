"""Means of right-or-wrong scores with honest intervals, pass@k and majority@k.

Answers to one question are not independent, so the question is the unit: repeats narrow the noise of sampling, never
the luck of which questions are in the set (Miller 2024, "Adding Error Bars to Evals", §3.1).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsabench.stats.bootstrap import Interval, bootstrap
from dsabench.stats.proportion import wilson

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
