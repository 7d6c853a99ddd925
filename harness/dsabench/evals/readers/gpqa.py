"""GPQA diamond: 198 multiple-choice questions, shuffled with seed 0 as simple-evals does."""

from __future__ import annotations

import random
from pathlib import Path

from dsabench.evals.question import Question, fill
from dsabench.evals.readers.files import Row, read_csv
from dsabench.evals.readers.frames import shown_cell
from dsabench.model.evals import EvalSpec

_CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def read_gpqa(spec: EvalSpec, data: Path | None, /) -> tuple[Question, ...]:
    """Sample the rows, then draw a permutation of the choices for each, from one generator.

    Order of the draws as in sglang's simple_eval_gpqa.py; with all 198 asked for, the sample is a permutation, and
    without a number there is none.
    """
    assert data is not None
    rows = list(enumerate(read_csv(data)))
    rng = random.Random(0)
    if spec.num_examples is not None:
        rows = rng.sample(rows, min(spec.num_examples, len(rows)))
    return tuple(_question(spec, number, row, rng.sample(range(4), 4)) for number, row in rows)


def _question(spec: EvalSpec, number: int, row: Row, order: list[int]) -> Question:
    # Read before it is shuffled, so that an empty cell is named by its column.
    texts = [shown_cell(row.text(column)) for column in _CHOICES]
    choices = [texts[index] for index in order]
    values = {"Question": shown_cell(row.text("Question")), **dict(zip("ABCD", choices, strict=True))}
    # Where two choices have the same text the first is taken to be right, as `choices.index` does.
    return Question(f"gpqa-{number}", fill(spec.prompt.template, values), "ABCD"[choices.index(texts[0])])
