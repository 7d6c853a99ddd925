"""The predictions that NeMo-Skills and sgl-eval write (one JSONL for each repeat) as samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsabench.errors import TrialFault
from dsabench.evals.sample import EvalSample, Standing, standing_of


def read_predictions(folder: Path, pattern: str, harness_id: str) -> tuple[EvalSample, ...]:
    """Every prediction of a run with the driver's own grade; files in the order of their repeats.

    Raises:
        TrialFault: there is none, or a line is none.

    """
    files = sorted(folder.glob(pattern), key=lambda file: int(file.stem.rpartition("rs")[2]))
    if not files:
        raise TrialFault("bad_response", f"the driver left no {pattern} in {folder}", stage="load")
    return tuple(sample for repeat, file in enumerate(files) for sample in _read_file(file, repeat, harness_id))


def _read_file(file: Path, repeat: int, harness_id: str) -> Iterator[EvalSample]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
        try:
            yield _sample(json.loads(line), number, repeat, harness_id)
        except (ValueError, KeyError, TypeError) as error:
            what = f"{file}:{number + 1}: no prediction of NeMo-Skills' form ({type(error).__name__}: {error})"
            raise TrialFault("bad_response", what[:300], stage="load") from error


def _sample(row: dict[str, Any], number: int, repeat: int, harness_id: str) -> EvalSample:
    question = str(row.get("id") or f"question-{number}")
    # Older NeMo-Skills call it is_correct.
    answer = row.get("predicted_answer")
    right = bool(row["symbolic_correct"] if "symbolic_correct" in row else row["is_correct"])
    failed = row.get("finish_reason") == "error"
    standing: Standing = "failed" if failed else standing_of(answer, right)
    start_s, end_s = row.get("generation_start_time"), row.get("generation_end_time")
    return EvalSample(
        id=f"{question}#{repeat}",
        question=question,
        repeat=repeat,
        harness_id=harness_id,
        prompt=str(row.get("problem") or ""),
        completion=None if failed else str(row["generation"]),
        reasoning=row.get("reasoning_content"),
        expected=str(row["expected_answer"]),
        answer=None if answer is None else str(answer),
        score=float(right),
        standing=standing,
        finish_reason=row.get("finish_reason"),
        truncated=row.get("finish_reason") == "length",
        completion_tokens=row.get("num_generated_tokens"),
        reasoning_tokens=row.get("num_reasoning_tokens"),
        latency_s=None if start_s is None or end_s is None else end_s - start_s,
        error="the driver's request failed" if failed else None,
        finished_at_s=end_s,
    )
