"""Small generated questions in the forms of GSM8K and GPQA: an eval that needs no download.

Every answer is computed, so no question can be wrong. The questions are easy for a real model: the eval shows that a server
answers sensibly, and that two settings do not differ a lot. It is no benchmark.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from dsabench.evals.question import Question, fill
from dsabench.model.evals import EvalSpec
from dsabench.model.words import NAMES, THINGS

PER_FORM = 120
"""Questions of each form."""
_SEED = 1
_MONTHS = {"January": 31, "March": 31, "April": 30, "May": 31, "June": 30, "July": 31, "August": 31, "September": 30}


def make_demo(spec: EvalSpec, _data: Path | None, /) -> tuple[Question, ...]:
    """Arithmetic and multiple-choice questions in turns; the same in every run."""
    questions: list[Question] = []
    for number in range(PER_FORM):
        rng = random.Random(f"{_SEED} {number}")
        text, answer = _PROBLEMS[number % len(_PROBLEMS)](rng)
        questions.append(_question(spec, number, "arithmetic", text, str(answer)))
        text, right, wrong = _CHOICES[number % len(_CHOICES)](rng)
        options = [right, *wrong]
        rng.shuffle(options)
        listed = "".join(f"\n{letter}) {option}" for letter, option in zip("ABCD", options, strict=True))
        letter = "ABCD"[options.index(right)]
        questions.append(_question(spec, number, "choice", text + listed, letter))
    return tuple(questions[: spec.num_examples])


def _question(spec: EvalSpec, number: int, form: str, text: str, expected: str) -> Question:
    wanted = "the number" if form == "arithmetic" else "the letter"
    prompt = fill(spec.prompt.template, {"question": text, "wanted": wanted})
    return Question(f"demo-{form}-{number}", prompt, expected, form)


def _shared(rng: random.Random) -> tuple[str, int]:
    people, each, left = rng.randint(4, 9), rng.randint(4, 15), rng.randint(1, 3)
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    total = people * each + left
    return (
        f"{name} shares {total} {thing} equally among {people} friends and keeps the rest. How many does each friend get?",
        each,
    )


def _bought(rng: random.Random) -> tuple[str, int]:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    count, price, paid = rng.randint(3, 12), rng.randint(2, 9), rng.randint(120, 200)
    return (
        f"{name} buys {count} {thing} for {price} euros each and pays with {paid} euros. How many euros are the change?",
        paid - count * price,
    )


def _saved(rng: random.Random) -> tuple[str, int]:
    name, start, week, weeks, spent = rng.choice(NAMES), *(rng.randint(10, 40) for _ in range(3)), rng.randint(5, 30)
    text = f"{name} has {start} euros, saves {week} euros a week for {weeks} weeks, and then spends {spent} euros."
    return f"{text} How many euros are left?", start + week * weeks - spent


def _travelled(rng: random.Random) -> tuple[str, int]:
    speed, hours, more = 10 * rng.randint(4, 12), rng.randint(2, 6), rng.randint(11, 95)
    return (
        f"A train drives {hours} hours at {speed} km/h and then {more} km more. How many km does it drive?",
        speed * hours + more,
    )


def _doubled(rng: random.Random) -> tuple[str, int]:
    name, other = rng.sample(NAMES, 2)
    thing, count, fewer = rng.choice(THINGS), rng.randint(6, 40), rng.randint(1, 5)
    return (
        f"{name} has {count} {thing}. {other} has twice as many, less {fewer}. How many {thing} do they have together?",
        count + 2 * count - fewer,
    )


def _filled(rng: random.Random) -> tuple[str, int]:
    rows, seats, empty = rng.randint(8, 25), rng.randint(9, 30), rng.randint(5, 60)
    return (
        f"A hall has {rows} rows of {seats} seats. {empty} seats are empty. How many are taken?",
        rows * seats - empty,
    )


def _remainder(rng: random.Random) -> tuple[str, str, list[str]]:
    divisor, number = rng.randint(5, 11), rng.randint(100, 900)
    right = number % divisor
    wrong = rng.sample([other for other in range(divisor) if other != right], 3)
    return f"What is the remainder of {number} divided by {divisor}?", str(right), list(map(str, wrong))


def _sequence(rng: random.Random) -> tuple[str, str, list[str]]:
    start, step = rng.randint(2, 30), rng.randint(3, 14)
    shown, right = [start + step * i for i in range(5)], start + step * 5
    text = f"Which number continues the sequence {', '.join(map(str, shown))}?"
    return text, str(right), [str(right + difference) for difference in (-step, step, 1)]


def _largest(rng: random.Random) -> tuple[str, str, list[str]]:
    pairs = rng.sample([(top, below) for below in range(3, 12) for top in range(1, below)], 12)
    values = sorted({top / below: f"{top}/{below}" for top, below in pairs}.items())[-4:]
    *smaller, (_, right) = values
    return "Which fraction is the largest?", right, [text for _, text in smaller]


def _day(rng: random.Random) -> tuple[str, str, list[str]]:
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    today, later = rng.randrange(7), rng.randint(8, 60)
    right = days[(today + later) % 7]
    wrong = rng.sample([day for day in days if day != right], 3)
    return f"Today is {days[today]}. Which day is it in {later} days?", right, wrong


def _month(rng: random.Random) -> tuple[str, str, list[str]]:
    month, day, later = rng.choice(list(_MONTHS)), rng.randint(22, 28), rng.randint(12, 20)
    right = day + later - _MONTHS[month]
    wrong = [str(right + difference) for difference in (-1, 1, 2)]
    return f"It is {month} {day}. Which day of the next month is it {later} days later?", str(right), wrong


def _heavier(rng: random.Random) -> tuple[str, str, list[str]]:
    order = rng.sample(NAMES, 4)
    facts = [f"{one} is taller than {other}." for one, other in pairwise(order)]
    rng.shuffle(facts)
    return f"{' '.join(facts)} Who is the shortest?", order[-1], order[:-1]


_PROBLEMS: tuple[Callable[[random.Random], tuple[str, int]], ...] = (
    _shared, _bought, _saved, _travelled, _doubled, _filled,
)  # fmt: skip
_CHOICES: tuple[Callable[[random.Random], tuple[str, str, list[str]]], ...] = (
    _remainder, _sequence, _largest, _day, _month, _heavier,
)  # fmt: skip
