"""The demo eval: its questions have one right answer each, found here a second way, and its grader takes the last one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from fractions import Fraction

import pytest

from dsabench.config.load import load_eval
from dsabench.evals.graders import score_final_answer
from dsabench.evals.question import Question
from dsabench.evals.readers.demo import make_demo

QUESTIONS = make_demo(load_eval("demo"), None)
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September"]


def weekday(text: str, n: list[int]) -> str:
    return DAYS[(DAYS.index(re.findall(r"Today is (\w+)", text)[0]) + n[0]) % 7]


def day_of_next_month(text: str, n: list[int]) -> str:
    month = MONTHS.index(re.findall(r"It is (\w+)", text)[0]) + 1
    return str((date(2026, month, n[0]) + timedelta(days=n[1])).day)


def shortest(text: str, _: list[int]) -> str:
    taller = dict(re.findall(r"(\w+) is taller than (\w+)", text))
    return next(name for name in taller.values() if name not in taller)


# Words of a question → its answer, from the text and the numbers in it.
SOLVERS: dict[str, Callable[[str, list[int]], object]] = {
    "shares": lambda _, n: n[0] // n[1],
    "are the change": lambda _, n: n[2] - n[0] * n[1],
    "saves": lambda _, n: n[0] + n[1] * n[2] - n[3],
    "train": lambda _, n: n[0] * n[1] + n[2],
    "twice as many": lambda _, n: 3 * n[0] - n[1],
    "rows": lambda _, n: n[0] * n[1] - n[2],
    "remainder": lambda _, n: n[0] % n[1],
    "sequence": lambda _, n: 2 * n[4] - n[3],
    "fraction": lambda text, _: max(re.findall(r"\d+/\d+", text), key=Fraction),
    "Today is": weekday,
    "next month": day_of_next_month,
    "taller": shortest,
}


def solve(question: Question) -> str:
    asked = question.prompt.partition("\nA)")[0].partition("\n\nThink")[0]
    solver = next(solver for words, solver in SOLVERS.items() if words in asked)
    return str(solver(question.prompt, [int(number) for number in re.findall(r"\d+", asked)]))


def test_each_question_has_the_one_right_answer() -> None:
    for question in QUESTIONS:
        options = dict(re.findall(r"^([A-D])\) (.+)$", question.prompt, re.MULTILINE))
        assert len(set(options.values())) in {0, 4}, question
        assert options.get(question.expected, question.expected) == solve(question), question


def test_the_questions_are_many_distinct_and_the_same_in_every_run() -> None:
    assert len(QUESTIONS) >= 200
    assert len({question.prompt for question in QUESTIONS}) == len({question.id for question in QUESTIONS}) == 240
    assert make_demo(load_eval("demo"), None) == QUESTIONS


@pytest.mark.parametrize(
    ("completion", "expected", "answer", "correct"),
    [
        ("12 + 7 = 19.\nAnswer: 19", "19", "19", True),
        ("Answer: A? No: Answer: **B**", "B", "B", True),
        ("answer: $1,204$", "1204", "1204", True),
        ("The answer is 19", "19", None, False),
        ("Answer: Because", "B", None, False),
        ("Answer: b", "B", None, False),
    ],
)
def test_the_last_answer_counts(completion: str, expected: str, answer: str | None, correct: bool) -> None:
    assert score_final_answer(completion, expected) == (answer, correct)
