"""Answers that are one letter."""

from __future__ import annotations

import re

from dsabench.evals.scorers.protocol import Grade

_FIRST_ANSWER = re.compile(r"(?i)Answer\s*:\s*([A-D])")


def score_first_letter(completion: str, expected: str, /) -> Grade:
    """simple-evals' grader of GPQA: the first "Answer: X" counts, and a small letter is never right.

    A server that returns its thinking inside the content is graded by the first letter that the thinking names.
    """
    match = _FIRST_ANSWER.search(completion)
    return Grade(match[1] if match else None, match is not None and match[1] == expected)


def score_first_character(completion: str, expected: str, /) -> Grade:
    """The grader of sglang's benchmark/mmlu: the first character that is no white space."""
    answer = completion.strip()[:1]
    return Grade(answer or None, answer == expected)
