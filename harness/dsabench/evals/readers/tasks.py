"""The skills of the reference runtime's trained model, asked in the forms of GSM8K, GPQA and AIME.

Every answer is computed. The templates are those that the training did not have (`reference.train.texts`), so a score says
how well the model does what it was trained for, and how much of that a setting costs. It is no benchmark of other models.
"""

from __future__ import annotations

import random
from pathlib import Path

from dsabench.evals.question import Question, fill
from dsabench.model.evals import EvalSpec
from dsabench.reference.train.texts import draw


def make_tasks(spec: EvalSpec, _data: Path | None, /) -> tuple[Question, ...]:
    """`num_examples` questions, the same in every run: more of them begin with the fewer. The template may have `{question}` and, for choices, `{A}` to `{D}`."""
    wanted = spec.tasks
    assert wanted is not None
    assert spec.num_examples is not None
    questions = []
    for number in range(spec.num_examples):
        task = draw(wanted.skill, random.Random(f"eval {wanted.seed} {wanted.skill} {number}"), held_out=True)
        values = {"question": task.question, **dict(zip("ABCD", task.options, strict=False))}
        questions.append(Question(f"{spec.name}-{number}", fill(spec.prompt.template, values), task.answer))
    return tuple(questions)
