"""Completion → grade. One family of graders a module; `SCORERS` names them."""

from __future__ import annotations

from dsabench.evals.scorers.letters import score_first_character, score_first_letter
from dsabench.evals.scorers.mathematics import score_nemo_math
from dsabench.evals.scorers.numbers import (
    score_aime_integer,
    score_code,
    score_final_answer,
    score_last_integer,
    score_last_number,
)
from dsabench.evals.scorers.protocol import Grade, Scorer
from dsabench.model.evals import ScorerName

SCORERS: dict[ScorerName, Scorer] = {
    "last-integer": score_last_integer,
    "last-number": score_last_number,
    "first-letter": score_first_letter,
    "first-character": score_first_character,
    "nemo-math": score_nemo_math,
    "aime-integer": score_aime_integer,
    "code": score_code,
    "final-answer": score_final_answer,
}
SLOW: frozenset[ScorerName] = frozenset({"nemo-math"})
"""May compute for seconds and set signals, so they run in a process of their own."""

__all__ = ["SCORERS", "SLOW", "Grade", "Scorer"]
