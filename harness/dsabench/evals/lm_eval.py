"""Samples of lm-evaluation-harness (`lm_eval --log_samples`), so that its runs can be compared question by question."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dsabench.errors import InputError
from dsabench.evals.sample import EvalSample, standing_of

_MARKS = (b'"doc_id"', b'"filtered_resps"')


def is_lm_eval(line: bytes) -> bool:
    """Whether a line is one of its samples."""
    return all(mark in line for mark in _MARKS)


def parse_lm_eval(files: Iterable[tuple[str, bytes]]) -> tuple[EvalSample, ...]:
    """The samples of (name, content) of runs of one task; several runs are repeats of each question.

    Each filter and metric is a harness of its own (`lm-eval flexible-extract exact_match`). Metrics that are no shares of 1, such as a
    perplexity, are left out.

    Raises:
        InputError: a line is no such sample, or no metric is a share of 1.

    """
    found: list[EvalSample] = []
    seen: Counter[tuple[str, str]] = Counter()
    foreign: set[str] = set()
    name = ""
    for name, data in files:
        for number, line in enumerate(data.splitlines(), 1):
            place = f"{name}:{number}"
            for harness, score, row in _scores(line, place):
                if not 0.0 <= score <= 1.0:
                    foreign.add(harness)
                    continue
                question = str(row["doc_id"])
                found.append(_sample(row, harness, score, seen[harness, question]))
                seen[harness, question] += 1
    kept = tuple(sample for sample in found if sample.harness_id not in foreign)
    if not kept:
        raise InputError(f"{name}: no metric in it that is a share of 1")
    return kept


def _scores(line: bytes, place: str) -> Iterator[tuple[str, float, Mapping[str, Any]]]:
    try:
        row = json.loads(line)
        metrics = row["metrics"]
        scores = [(f"lm-eval {row.get('filter', 'none')} {name}", float(row[name])) for name in metrics]
        _ = row["doc_id"], row["target"]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        missing = (
            f"no {error}"
            if isinstance(error, KeyError)
            else "not a sample with doc_id, target, metrics and their values"
        )
        raise InputError(f"{place}: a sample of lm-evaluation-harness? {missing}") from error
    yield from ((harness, score, row) for harness, score in scores)


def _sample(row: Mapping[str, Any], harness: str, score: float, repeat: int) -> EvalSample:
    answers = row.get("filtered_resps")
    answer = str(answers[0]) if isinstance(answers, list) and answers else None
    completion = next(_texts(row.get("resps")), None)
    return EvalSample(
        id=f"{row['doc_id']}#{repeat}",
        question=str(row["doc_id"]),
        repeat=repeat,
        harness_id=harness,
        # The hash tells other prompts apart without keeping them twice.
        prompt=str(row.get("prompt_hash") or row.get("doc_hash") or ""),
        completion=completion,
        expected=str(row["target"]),
        answer=answer,
        score=score,
        standing=standing_of(answer, score),
    )


def _texts(resps: object) -> Iterator[str]:
    if isinstance(resps, str):
        yield resps
    elif isinstance(resps, list):
        for one in resps:
            yield from _texts(one)
