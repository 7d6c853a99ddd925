r"""The graders of the evals' originals, with their oddities: what each takes from a completion, and whether it is right.

Few-shot GSM8K, run_eval's gsm8k, gpqa and aime25 are sglang 0.5.9's; MMLU's is benchmark/mmlu's. `nemo-math` is NeMo-Skills'
math_grader.py at 645cf56, as sgl-eval 0.1.3 carries it, around Hugging Face's math-verify. A grader never raises: what cannot
be read is no answer.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple, Protocol

from dsabench.model.evals import ScorerName

_FIRST_ANSWER = re.compile(r"(?i)Answer\s*:\s*([A-D])")
_INTEGER = re.compile(r"\d+")
_NUMBER = re.compile(r"-?\d+\.?\d*")
_AIME = re.compile(r"(?i)Answer\s*:\s*([^\n]+)")
_FINAL = re.compile(r"(?i:Answer\s*:)[\s*$]*([A-D](?![A-Za-z])|-?\d[\d,]*)")
_CODE = re.compile(r"(?<!\d)\d{7}(?!\d)")
_BOXED = "\\boxed"
_IN_LATEX = re.compile(r"\$.*\$|\\\(.*\\\)|\\\[.*\\\]|\\boxed\{", re.DOTALL)
_PERCENT = re.compile(r"(\d+\.?\d*)(?:\\%|%)")
_PLAIN_WORDS = re.compile(r"[a-zA-Z ,]+")
_DIGITS_COMPARED = 15
_TIME_LIMIT_S = 10


class Grade(NamedTuple):
    """What a grader found."""

    answer: str | None
    """The answer it took from the completion; None where it found none."""
    correct: bool


class Scorer(Protocol):
    """Takes an answer from a completion and holds it against the expected one. Pure, and safe to send to a process."""

    def __call__(self, completion: str, expected: str, /) -> Grade:
        """Never raises: what cannot be read is no answer."""


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


def score_nemo_math(completion: str, expected: str, /) -> Grade:
    r"""NeMo-Skills' grader of mathematics: the last \boxed{…}, compared as text, then symbolically by math-verify.

    Its time limits are signals, so it runs in the main thread of a process only.
    """
    answer = last_boxed(completion)
    return Grade(answer, answer is not None and is_equal(expected, answer))


def last_boxed(text: str) -> str | None:
    r"""What the last \boxed{…} holds; None without one, or where its braces do not close."""
    start = text.rfind(_BOXED)
    inside = start + len(_BOXED) + 1
    if start < 0 or text[inside - 1 : inside] != "{":
        return None
    depth = 1
    for position in range(inside, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[inside:position]
    return None


def is_equal(expected: str, answer: str) -> bool:
    """Whether both name the same value. Main thread only (see `score_nemo_math`)."""
    from latex2sympy2_extended import NormalizationConfig, normalize_latex  # noqa: PLC0415  (sympy takes a second)
    from math_verify import LatexExtractionConfig, parse, verify  # noqa: PLC0415

    expected, answer = (_without_percent(text) for text in (expected, answer))
    plain = [normalize_latex(text, NormalizationConfig).replace(" ", "") for text in (expected, answer)]
    if plain[0] == plain[1]:
        return True
    if all(_PLAIN_WORDS.fullmatch(text) for text in plain):
        return False
    wrapped = [text if _IN_LATEX.search(text) else f"${text}$" for text in (expected, answer)]
    parsed = [parse(text, [LatexExtractionConfig()]) for text in wrapped]
    return bool(verify(*parsed, numeric_precision=_DIGITS_COMPARED, timeout_seconds=_TIME_LIMIT_S))


def _without_percent(text: str) -> str:
    match = _PERCENT.fullmatch(text)
    return (match[1] if match else text).rstrip(".\\")


SCORERS: dict[ScorerName, Scorer] = {
    "last-integer": score_last_integer,
    "last-number": score_last_number,
    "first-letter": score_first_letter,
    "first-character": score_first_character,
    "nemo-math": score_nemo_math,
    "aime-integer": score_aime_integer,
    "code": score_code,
    "final-answer": score_final_answer,
}
