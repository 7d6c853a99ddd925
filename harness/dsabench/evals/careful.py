r"""Read an answer as a careful person would, beside the grader of the eval's original.

The originals take the last digits or the first "Answer: X" of whatever text comes. They miss bold and boxed answers, read the next
question that a model goes on to write, and take what was corrected later. Their score is the one to hold against published
scores; the careful one says whether a setting is less accurate.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dsabench.evals.graders import SCORERS, Grade, Scorer, is_equal, last_boxed
from dsabench.model.evals import ScorerName

_NEXT_QUESTION = re.compile(r"\n\s*(?:Question|Q)\s*:")
_PLAIN_END = re.compile(r"(?:####|(?i:\banswer(?:\s+is)?:?))\s+\$?(-?(?:[1-9][\d,]*|0)(?:\.\d+)?)\s*\.?\s*\Z")
_BOX_BEGINS = re.compile(r"\\f?boxed|</think>")
_GSM8K_MARK = re.compile(r"####[ \t]*([^\n]*\d[^\n]*)")
_BOLD = re.compile(r"\*\*([^*\n]*\d[^*\n]*)\*\*")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_CHINESE_ANSWER = re.compile("(?:正确)?答案(?:是|为)?\\s*[：:]?\\s*")
_ANSWER_COLON = re.compile(r"(?i)(\banswer)\s*:\s*")
_TAKEN_BACK = re.compile(
    r"(?i)-?\d[\d.,]*[\s,;:.(-]*\b(?:no|wait|sorry|i mean|rather|actually|make that)\b[\s,;:.]*(?=[-$]?\d)"
)
_EITHER_NUMBER = re.compile(r"-?\d[\d.,]*\s+or\s+\$?-?\d[\d.,]*")
_EMPHASIS = re.compile(r"\*+|__")
_DRESSED = re.compile(r"\\(?:text|textbf|mathbf|mathrm|mathit|boldsymbol)\s*\{([^{}]*)\}")
_BOX = re.compile(r"\\f?boxed\s*\{([^{}]*)\}")
_LETTER = r"[\s$\\({\[]*([A-D]|[a-d](?=[\s.)$\\}\]]*(?:\n|$)))(?![A-Za-z])(?!\s*(?:or|/)\s*\(?[A-D]\b)"
_NAMED_LETTER = re.compile(
    r"(?i:\banswer(?:\s+(?:choice|option))?\s*(?:is|:|=|would\s+be|should\s+be|must\s+be)\s*:?"
    r"(?:\s*(?:the\s+)?(?:correct\s+)?(?:answer|choice|option|letter)\s*(?:is|:)?)?)" + _LETTER
)
_LETTER_LINE = re.compile(r"(?m)^\W*([A-D])\W*$|\A\W*([A-D])(?=\s*[.):])")


class Grades(NamedTuple):
    """What was found in one answer."""

    careful: Grade
    original: Grade | None = None
    """Of the eval's original; None for evals of our own and for MMLU, where `careful` is the only grader."""
    differ: bool = False
    """The two took different answers."""


def grade(name: ScorerName, completion: str, expected: str, told: Grade | None = None, /) -> Grades:
    """What the eval's own grader (unless its grade is told) and a careful reader find.

    Mathematics is compared by math-verify, whose time limits are signals: main thread only.
    """
    original = SCORERS[name](completion, expected) if told is None else told
    if name not in CAREFUL:
        return Grades(original)
    careful = CAREFUL[name](completion, expected)
    return Grades(careful, original, differ=not _is_same(careful, original))


def is_quick(name: ScorerName, completion: str) -> bool:
    """Whether `grade` needs no math-verify: its second for a thousand answers is worth saving where they come at once."""
    return name not in SLOW or (CAREFUL[name] is score_value and _plain_value(completion) is not None)


def _is_same(one: Grade, other: Grade) -> bool:
    if one.correct or other.correct:
        return one.correct == other.correct
    if one.answer is None or other.answer is None:
        return one.answer == other.answer
    return _is_equal(one.answer, other.answer)


def _is_equal(expected: str, answer: str) -> bool:
    """As `is_equal`; two plain numbers need no algebra, which takes milliseconds."""
    try:
        return float(expected) == float(answer)
    except ValueError:
        return is_equal(expected, answer)


def score_letter(completion: str, expected: str, /) -> Grade:
    """The last letter that the text names as its answer."""
    answer = read_letter(completion)
    return Grade(answer, answer == expected)


def score_value(completion: str, expected: str, /) -> Grade:
    """The value that the text names as its answer, compared by math-verify."""
    answer = read_value(completion)
    return Grade(answer, answer is not None and _is_equal(expected, answer))


def score_mathematics(completion: str, expected: str, /) -> Grade:
    """As `score_value`, but what stands in a box is compared whole, as NeMo-Skills does: it may be more than a value."""
    answer = _last_box(_spoken(completion)) or read_value(completion)
    return Grade(answer, answer is not None and _is_equal(expected, answer))


def read_letter(completion: str) -> str | None:
    r"""The last of "answer is X", "Answer: X" and \boxed{X}; else a line that is a letter alone; else a letter at the start.

    math-verify's extraction of letters finds 10 of the 15 public forms that are held here.
    """
    text = _EMPHASIS.sub("", _spoken(completion))
    while _DRESSED.search(text):
        text = _DRESSED.sub(r"\1", text)
    text = _BOX.sub(r"\nAnswer: \1\n", text)
    found = [match[1] for match in _NAMED_LETTER.finditer(text)]
    found = found or [match[1] or match[2] for match in _LETTER_LINE.finditer(text)]
    return found[-1].upper() if found else None


def read_value(completion: str) -> str | None:
    r"""The value after the last "####", in the last \boxed{}, after "answer is"; else the last bold one; else the last one."""
    if (plain := _plain_value(completion)) is not None:
        return plain
    text = _spoken(completion)
    own = _NEXT_QUESTION.split(text, maxsplit=1)[0]
    return _value_in(own) or (_value_in(text) if own != text else None)


def _plain_value(completion: str) -> str | None:
    """Of a text that ends with "#### 18" or "answer is 18.": math-verify would say the same."""
    match = _PLAIN_END.search(completion)
    if match is None or _BOX_BEGINS.search(completion) or _NEXT_QUESTION.search(completion):
        return None
    return match[1].replace(",", "")


def _spoken(completion: str) -> str:
    """The text without thinking that the server left in it; a Chinese "answer" in English."""
    after = completion.rpartition("</think>")[2]
    return _CHINESE_ANSWER.sub("answer: ", after if after.strip() else completion)


def _value_in(text: str) -> str | None:
    if marked := _GSM8K_MARK.findall(text):
        text = marked[-1]
    if boxed := _last_box(text):
        text = f"\\boxed{{{boxed}}}"
    plain = _ANSWER_COLON.sub(r"\1: ", _EMPHASIS.sub("", text))
    plain = _EITHER_NUMBER.sub("", _TAKEN_BACK.sub("", plain))
    found = _extract(plain, anywhere=False)
    if found is None and (bold := _BOLD.findall(text)):
        found = _extract(bold[-1], anywhere=True)
    return found if found is not None else _extract(plain, anywhere=True)


def _last_box(text: str) -> str | None:
    return last_boxed(text.replace("\\fbox", "\\boxed"))


def _extract(text: str, *, anywhere: bool) -> str | None:
    """What math-verify takes for the answer; `anywhere` without words such as "the answer is" before it."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse  # noqa: PLC0415  (sympy takes a second)

    ways = [way(try_extract_without_anchor=anywhere) for way in (LatexExtractionConfig, ExprExtractionConfig)]
    found = [one for one in parse(text, ways) if isinstance(one, str)]
    if not found or not found[-1].strip():
        return None
    return found[-1].replace(",", "") if _THOUSANDS.fullmatch(found[-1]) else found[-1]


CAREFUL: dict[ScorerName, Scorer] = {
    "last-integer": score_value,
    "last-number": score_value,
    "nemo-math": score_mathematics,
    "aime-integer": score_mathematics,
    "first-letter": score_letter,
}
"""The careful reader beside an original. MMLU's one token leaves nothing to read with more care."""

SLOW: frozenset[ScorerName] = frozenset(name for name, scorer in CAREFUL.items() if scorer is not score_letter)
"""May compute for seconds and set signals, so they run in a process of their own."""
