"""What every reader does."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from dsabench.evals.question import Question
from dsabench.model.evals import EvalSpec


class Reader(Protocol):
    """Makes the questions of an eval."""

    def __call__(self, spec: EvalSpec, data: Path | None, /) -> tuple[Question, ...]:
        """The questions, in the order in which the eval's original asks them; `data` is None for generated ones.

        Raises:
            InputError: the file cannot be read, or something in it is missing; the line names the place.

        """
