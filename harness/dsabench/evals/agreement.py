"""How many answers of a setting are the default's own, word for word, against how many the default itself repeats.

Exact match with the baseline's greedy answers tells a change of numerics without knowing what is right, so it works on any
weights. The default asked again seldom repeats all of them (batches differ, and rounding with them): what it repeats is
the base that the candidate is held against, so its own unsteadiness is not charged to the candidate.
"""

from __future__ import annotations

from dataclasses import replace

from dsabench.errors import InputError
from dsabench.evals.compare import ComparedEval, compare_evals
from dsabench.evals.sample import EvalSample
from dsabench.model.verdict import Verdict


def compare_agreement(default: ComparedEval, candidate: ComparedEval, margin: float) -> Verdict:
    """Verdict on the share of equal answers; words as of `compare_evals`.

    The default's first pass is what is agreed with, its further passes are the base. Questions whose first request failed
    are left out; requests that failed later agree with nothing.

    Raises:
        InputError: the sides cannot be compared, or the default answered each question only once.

    """
    key = {sample.question: sample.completion for sample in default.samples if sample.repeat == 0}
    again = tuple(sample for sample in default.samples if sample.repeat > 0)
    if not again:
        raise InputError(f"{default.name}: agreement needs two passes or more of the default")
    sides = [
        replace(side, samples=_agreeing(samples, key))
        for side, samples in ((default, again), (candidate, candidate.samples))
    ]
    verdict = compare_evals(sides[0], sides[1], margin, "in agreement")
    base, found = (sum(sample.score for sample in side.samples) / len(side.samples) for side in sides)
    shares = f"answers as the default's first pass: {found:.1%}, the default itself {base:.1%}"
    return verdict.model_copy(update={"metric": "agreement", "reason": f"{verdict.reason}; {shares}"})


def _agreeing(samples: tuple[EvalSample, ...], key: dict[str, str | None]) -> tuple[EvalSample, ...]:
    return tuple(
        sample.model_copy(
            update={"expected": expected, "score": float(sample.completion == expected), "original_score": None}
        )
        for sample in samples
        if (expected := key.get(sample.question)) is not None
    )
