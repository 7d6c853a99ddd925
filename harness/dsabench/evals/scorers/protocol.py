"""What every grader does."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Grade(NamedTuple):
    """What a grader found."""

    answer: str | None
    """The answer it took from the completion; None where it found none."""
    correct: bool


class Scorer(Protocol):
    """Takes an answer from a completion and holds it against the expected one. Pure, and safe to send to a process."""

    def __call__(self, completion: str, expected: str, /) -> Grade:
        """Never raises: what cannot be read is no answer."""
