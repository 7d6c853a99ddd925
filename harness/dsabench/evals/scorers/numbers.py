"""Answers that are numbers. The patterns and their oddities are those of sglang 0.5.9's evals."""

from __future__ import annotations

import ast
import re

from dsabench.evals.scorers.protocol import Grade

_INTEGER = re.compile(r"\d+")
_NUMBER = re.compile(r"-?\d+\.?\d*")
_AIME = re.compile(r"(?i)Answer\s*:\s*([^\n]+)")
_FINAL = re.compile(r"(?i:Answer\s*:)[\s*$]*([A-D](?![A-Za-z])|-?\d[\d,]*)")
_CODE = re.compile(r"(?<!\d)\d{7}(?!\d)")


def last_integer(text: str) -> int | None:
    """The last run of digits, commas taken out first; None without one, or where it has a leading zero.

    few_shot_gsm8k.py: a sign and a decimal point are not seen, so "2.50" is 50 and "05" is no answer.
    """
    value = _last_literal(_INTEGER, text)
    return value if isinstance(value, int) else None


def last_number(text: str) -> float | None:
    """The last number, which may have a sign and a fraction; as `last_integer` otherwise (simple_eval_gsm8k.py)."""
    return _last_literal(_NUMBER, text)


def _last_literal(pattern: re.Pattern[str], text: str) -> int | float | None:
    found = pattern.findall(text.replace(",", ""))
    if not found:
        return None
    try:
        value = ast.literal_eval(found[-1])
    except (SyntaxError, ValueError):  # leading zeros, digits of other scripts, more digits than Python reads
        return None
    return value if isinstance(value, (int, float)) else None


def score_last_integer(completion: str, expected: str, /) -> Grade:
    """Few-shot GSM8K's grader."""
    value = last_integer(completion)
    return Grade(None if value is None else str(value), value is not None and value == int(expected))


def score_last_number(completion: str, expected: str, /) -> Grade:
    """The grader of run_eval's gsm8k."""
    value = last_number(completion)
    return Grade(None if value is None else str(value), value is not None and value == last_number(expected))


def score_aime_integer(completion: str, expected: str, /) -> Grade:
    """The grader of run_eval's aime25: the first "Answer:", as an integer of 0 to 999 where it is one."""
    match = _AIME.search(completion)
    answer = match[1].strip() if match else None
    return Grade(answer, answer is not None and _aime_integer(answer) == _aime_integer(expected))


def _aime_integer(text: str) -> str:
    text = text.strip()
    try:
        value = int(float(text))
    except (ValueError, OverflowError):
        return text
    return str(value) if 0 <= value <= 999 else text


def score_code(completion: str, expected: str, /) -> Grade:
    """The last number of exactly seven digits."""
    found = _CODE.findall(completion)
    return Grade(found[-1] if found else None, bool(found) and found[-1] == expected)


def score_final_answer(completion: str, expected: str, /) -> Grade:
    """The last "Answer: X", where X is a letter of A to D or an integer."""
    found = _FINAL.findall(completion)
    answer = found[-1].replace(",", "") if found else None
    return Grade(answer, answer == expected)
