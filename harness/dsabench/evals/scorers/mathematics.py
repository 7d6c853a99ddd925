r"""NeMo-Skills' grader of mathematics: the last \boxed{…}, compared as text, then symbolically by math-verify.

NeMo-Skills' math_grader.py at 645cf56, as sgl-eval 0.1.3 carries it; the comparison itself is Hugging Face's
math-verify. Its time limits are signals, so it runs in the main thread of a process only.
"""

from __future__ import annotations

import importlib.util
import re

from dsabench.errors import InputError
from dsabench.evals.scorers.protocol import Grade

_BOXED = "\\boxed"
_IN_LATEX = re.compile(r"\$.*\$|\\\(.*\\\)|\\\[.*\\\]|\\boxed\{", re.DOTALL)
_PERCENT = re.compile(r"(\d+\.?\d*)(?:\\%|%)")
_PLAIN_WORDS = re.compile(r"[a-zA-Z ,]+")
_DIGITS_COMPARED = 15
_TIME_LIMIT_S = 10


def require_math_verify() -> None:
    """Refuse to start an eval that could not be graded.

    Raises:
        InputError: math-verify is not installed.

    """
    if importlib.util.find_spec("math_verify") is None:
        raise InputError("this eval is graded by math-verify: pip install math-verify")


def score_nemo_math(completion: str, expected: str, /) -> Grade:
    """Grade one answer."""
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
    """Whether both name the same value."""
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
