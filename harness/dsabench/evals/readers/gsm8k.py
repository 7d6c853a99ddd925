"""GSM8K: grade-school mathematics with a few solved examples before each question."""

from __future__ import annotations

from pathlib import Path

from dsabench.errors import InputError
from dsabench.evals.graders import last_integer, last_number
from dsabench.evals.question import Question, fill
from dsabench.evals.readers.files import read_jsonl
from dsabench.model.evals import EvalSpec


def read_gsm8k(spec: EvalSpec, data: Path | None, /) -> tuple[Question, ...]:
    """Examples are the first lines of the test file. Where `asks_the_shots`, they are asked as well.

    few_shot_gsm8k.py (sglang 0.5.9) asks lines [0, n) and so the examples too; simple_eval_gsm8k.py leaves them out.
    """
    assert data is not None
    shots = spec.prompt.shots
    rows = read_jsonl(data)
    asked = rows if spec.prompt.asks_the_shots else rows[shots:]
    if len(rows) < shots or not asked:
        raise InputError(f"{data}: {len(rows)} questions are too few for {shots} examples")
    examples = "".join(f"Question: {row.text('question')}\nAnswer: {row.text('answer')}\n\n" for row in rows[:shots])
    number_of = last_integer if spec.scorer == "last-integer" else last_number
    questions = []
    for row in asked[: spec.num_examples]:
        expected = number_of(row.text("answer"))
        if expected is None:
            raise InputError(f"{row.place}: no number in the answer")
        prompt = fill(spec.prompt.template, {"shots": examples, "question": row.text("question")})
        questions.append(Question(f"gsm8k-{row.place.rpartition(':')[2]}", prompt, str(expected)))
    return tuple(questions)
