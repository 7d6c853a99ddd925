"""One answer with its grade: a line of the samples file."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt

from dsabench.evals.careful import Grades
from dsabench.model.value import Value

Standing = Literal["correct", "wrong", "no answer", "failed"]


class EvalSample(Value):
    """What was asked, what came back, what it is worth. Times are seconds."""

    id: str
    """`QUESTION#REPEAT`."""
    question: str
    repeat: NonNegativeInt
    """Counts from 0."""
    group: str | None = None
    harness_id: str
    prompt: str
    completion: str | None = None
    """None where the request failed."""
    reasoning: str | None = None
    """Thinking that the server returned apart from the content."""
    expected: str
    answer: str | None = None
    """What a careful reader takes from the completion; None where there is none."""
    score: float
    """1 or 0; a failed request is 0, as in the originals."""
    original_answer: str | None = None
    """What the grader of the eval's original took."""
    original_score: float | None = None
    """None where only one grader was asked: evals of our own, MMLU, and samples of earlier versions, whose `score` is the
    original's.
    """
    graders_differ: bool = False
    """The two took different answers."""
    standing: Standing
    finish_reason: str | None = None
    truncated: bool = False
    """The answer reached `max_tokens`."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    latency_s: float | None = None
    """From sending to the last byte of the attempt that succeeded."""
    first_token_s: float | None = None
    accept_length: float | None = None
    """Tokens per decode step, where the server drafted and told."""
    attempts: int = 1
    error: str | None = None
    finished_at_s: float | None = None
    """Unix time."""

    def as_original(self) -> EvalSample:
        """The sample as the grader of the eval's original grades it."""
        if self.original_score is None:
            return self
        standing = standing_of(self.original_answer, self.original_score)
        return self.model_copy(
            update={"answer": self.original_answer, "score": self.original_score, "standing": standing}
        )


def standing_of(answer: str | None, score: float) -> Standing:
    """Of a request that was answered."""
    return "correct" if score else "no answer" if answer is None else "wrong"


def graded(grades: Grades) -> dict[str, object]:
    """The fields of a sample that its grades fill."""
    careful, original = grades.careful, grades.original
    fields: dict[str, object] = {
        "answer": careful.answer,
        "score": float(careful.correct),
        "standing": standing_of(careful.answer, careful.correct),
    }
    if original is not None:
        fields |= {
            "original_answer": original.answer,
            "original_score": float(original.correct),
            "graders_differ": grades.differ,
        }
    return fields
