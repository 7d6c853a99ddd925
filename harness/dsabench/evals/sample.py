"""One answer with its grade: a line of the samples file."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt

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
    """What the grader took from the completion; None where it found none."""
    score: float
    """1 or 0; a failed request is 0, as in the originals."""
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
    attempts: int = 1
    error: str | None = None
    finished_at_s: float | None = None
    """Unix time."""
