"""AIME: thirty competition problems whose answers are integers from 0 to 999."""

from __future__ import annotations

from pathlib import Path

from dsabench.evals.question import Question, fill
from dsabench.evals.readers.files import read_jsonl
from dsabench.model.evals import EvalSpec

_COLUMNS = (("problem", "expected_answer"), ("question", "answer"))
"""Of NeMo-Skills' file and of the one on Hugging Face (opencompass/AIME2025)."""


def read_aime(spec: EvalSpec, data: Path | None, /) -> tuple[Question, ...]:
    """One question a line, in the file's order."""
    assert data is not None
    rows = read_jsonl(data)[: spec.num_examples]
    problem, answer = next((names for names in _COLUMNS if names[0] in rows[0].values), _COLUMNS[0])
    return tuple(
        Question(
            row.values.get("id", f"{spec.name}-{number}"),
            fill(spec.prompt.template, {"problem": row.text(problem)}),
            row.text(answer),
        )
        for number, row in enumerate(rows)
    )
