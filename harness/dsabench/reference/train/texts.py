"""What the trained model learns from and is tested on: all texts are generated, none is downloaded.

Arithmetic in words, multiple choice, integers, recall (which value stands beside a key, among many that look alike) and
running text. Each has templates that only training uses and templates that only tests use (`held_out`), so that a test asks
in sentences that the model has never read. The words of a held-out template stand in other templates of the training.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dsabench.model.words import COLOURS, NAMES, PLACES, THINGS, WORDS

Skill = Literal["arithmetic", "choice", "boxed"]
_NAMES = (
    *NAMES, "Mia", "Noor", "Omar", "Pia", "Quinn", "Rosa", "Sam", "Tara", "Uma", "Vera", "Will", "Yara", "Zoe",
)  # fmt: skip
_THINGS = (
    *THINGS, "pears", "keys", "cups", "stones", "bottles", "tickets", "flowers", "eggs", "photos", "ribbons",
)  # fmt: skip
_GAIN = ("buys", "finds", "gets", "wins", "collects", "picks up", "earns", "makes")
_LOSE = ("loses", "sells", "drops", "gives away", "uses", "breaks", "throws away", "hides")
_TIMES = (
    "in the morning",
    "in the evening",
    "on Monday",
    "on Friday",
    "after lunch",
    "at noon",
    "before dinner",
    "today",
)
_START = (
    "{name} has {n} {things}.", "{name} owns {n} {things}.", "There are {n} {things} in a box of {name}.",
    "At first {name} has {n} {things}.", "{name} starts with {n} {things}.", "In the box of {name} there are {n} {things}.",
)  # fmt: skip
_START_HELD_OUT = ("{name} has a box with {n} {things}.", "At first there are {n} {things} in the box of {name}.")
_CHANGE = (
    "{name} {verb} {n} {things}.", "Then {name} {verb} {n}.", "{name} {verb} {n} of them.", "{Time} {name} {verb} {n} {things}.",
    "{name} {verb} {n} {things} {time}.", "Then {name} {verb} {n} {things} {time}.", "After that {name} {verb} {n} {things}.",
    "Later {name} {verb} {n}.", "Later, {time}, {name} {verb} {n} {things}.",
)  # fmt: skip
_CHANGE_HELD_OUT = ("Then, {time}, {name} {verb} {n} {things}.", "After that {name} {verb} {n} {time}.")
_DOUBLE = (
    "Then {name} has {k} times as many.",
    "{Time} the number is {k} times as large.",
    "Later there are {k} times as many.",
)
_DOUBLE_HELD_OUT = ("After that {name} has {k} times as many {things}.",)
_ASK = (
    "How many {things} does {name} have now?", "How many {things} are there in the end?", "How many {things} are left?",
    "In the end, how many does {name} have?", "How many {things} has {name} got?", "What is the number of {things} now?",
)  # fmt: skip
_ASK_HELD_OUT = ("In the end, how many {things} are there?", "How many {things} does {name} have in the end?")

_ADJECTIVES = (
    *COLOURS, "narrow", "old", "pale", "quiet", "red", "silent", "tall", "upper", "violet", "white",
)  # fmt: skip
_PLACES = (
    *PLACES, "arcade", "barn", "chapel", "dock", "farm", "garage", "hall", "inn", "lodge", "office",
)  # fmt: skip
_WORDS = tuple(word for word in WORDS if word not in _PLACES)
_CODES = (
    "door code",
    "pass number",
    "lock number",
    "key code",
    "phone number",
    "safe code",
    "access number",
    "gate code",
)
_CODES_HELD_OUT = ("access code",)
_STATE = (
    "The {key} has the {code} {value}.", "{Key}: {code} {value}.", "For the {key} the {code} is {value}.",
    "Note the {code} of the {key}, {value}.", "The {code} at the {key} is {value}.",
)  # fmt: skip
_STATE_HELD_OUT = ("The {code} of the {key} is {value}.",)
_RECALL = ("The {key} has the {code}", "{Key}, {code}:", "For the {key} the {code} is", "The {code} at the {key}:")
_RECALL_HELD_OUT = ("The {code} of the {key}:",)
"""Both as `evals/needle.yaml` has them."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"


@dataclass(frozen=True, slots=True)
class Task:
    """A question, how it is worked out, and the answer."""

    question: str
    work: str
    answer: str
    """An integer, or the letter of an option."""
    options: tuple[str, ...] = ()
    """A to D, of a `choice`."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """One question about a text."""

    question: str
    value: str
    end: str
    """What stands behind the value."""


@dataclass(frozen=True, slots=True)
class RecallText:
    """A text with facts, and questions about some of them."""

    text: str
    lookups: tuple[Lookup, ...]


@dataclass(frozen=True, slots=True)
class RecallSize:
    """How long a text to look something up in is, and how much there is to be found."""

    length: int
    """Bytes, the questions included."""
    entries: int
    questions: int
    style: Literal["ledger", "prose"]
    """`ledger`: `qx=71;` among random letters. `prose`: sentences among random words."""


def draw(skill: Skill, rng: random.Random, *, held_out: bool) -> Task:
    """One question that fits into a few hundred bytes."""
    return {"arithmetic": _word_problem, "choice": _choice, "boxed": _integer}[skill](rng, held_out=held_out)


def draw_recall(size: RecallSize, rng: random.Random, *, held_out: bool, shuffled: bool = False) -> RecallText:
    """A text with `entries` facts and `questions` about some of them.

    `shuffled` is the control: every fact has another one's value, so that nothing but chance is left.
    """
    if size.style == "ledger":
        return _ledger(size, rng, shuffled=shuffled)
    code, keys = rng.choice(_CODES_HELD_OUT if held_out else _CODES), _keys(rng, size.entries)
    digits = rng.choice((3, 4, 5, 7))
    values = [str(rng.randrange(10 ** (digits - 1), 10**digits)) for _ in keys]
    shown = rng.sample(values, len(values)) if shuffled else values
    state, ask = _pick(rng, _STATE, _STATE_HELD_OUT, held_out), _pick(rng, _RECALL, _RECALL_HELD_OUT, held_out)
    facts = [
        state.format(code=code, key=key, Key=key.capitalize(), value=value)
        for key, value in zip(keys, shown, strict=True)
    ]
    asked = rng.sample(range(len(keys)), min(size.questions, len(keys)))
    questions = ["\n" + ask.format(code=code, key=keys[i], Key=keys[i].capitalize()) for i in asked]
    room = size.length - sum(len(fact) + 1 for fact in facts) - sum(len(q) + digits + 3 for q in questions)
    text = " ".join(_scattered(facts, _sentences(rng, room), rng))
    found = (Lookup(q, f" {values[i]}", ".") for q, i in zip(questions, asked, strict=True))
    return RecallText(text, tuple(found))


def _ledger(size: RecallSize, rng: random.Random, *, shuffled: bool) -> RecallText:
    numbers = rng.sample(range(len(_LETTERS) ** 2), size.entries)
    keys = [_LETTERS[number // 26] + _LETTERS[number % 26] for number in numbers]
    values = [f"{rng.randrange(100):02}" for _ in keys]
    shown = rng.sample(values, len(values)) if shuffled else values
    facts = [f"{key}={value};" for key, value in zip(keys, shown, strict=True)]
    asked = rng.sample(range(len(keys)), min(size.questions, len(keys)))
    room = max(0, size.length - 6 * len(facts) - 8 * len(asked))  # a question ends with its answer and a token
    filler = ["".join(rng.choices(_LETTERS, k=3)) + "," for _ in range(room // 4)]
    found = tuple(Lookup(f"\n{keys[i]}=", values[i], ";") for i in asked)
    return RecallText("".join(_scattered(facts, filler, rng)), found)


def _keys(rng: random.Random, count: int) -> list[str]:
    """Distinct pairs of words; half of the texts have made-up words, so that spelling is what counts."""
    if rng.random() < 0.5 and count <= len(_ADJECTIVES) * len(_PLACES) // 2:
        pairs = rng.sample(range(len(_ADJECTIVES) * len(_PLACES)), count)
        return [f"{_ADJECTIVES[p // len(_PLACES)]} {_PLACES[p % len(_PLACES)]}" for p in pairs]
    side = 2 + int(count**0.5) * 2
    first, second = ([_made_up(rng) for _ in range(side)] for _ in range(2))
    pairs = rng.sample(range(side * side), count)
    return list({f"{first[p // side]} {second[p % side]}": None for p in pairs})


def _made_up(rng: random.Random) -> str:
    return "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(2, 3)))


def _sentences(rng: random.Random, length: int) -> list[str]:
    """Random words in sentences, about `length` bytes."""
    made: list[str] = []
    while length > 0:
        sentence = " ".join(rng.choices(_WORDS, k=rng.randint(6, 14))).capitalize() + "."
        made.append(sentence)
        length -= len(sentence) + 1
    return made[:-1]


def _scattered(facts: Sequence[str], filler: Sequence[str], rng: random.Random) -> list[str]:
    """Facts at random places among the filler, in their own order."""
    places = sorted(rng.choices(range(len(filler) + 1), k=len(facts)))
    mixed: list[str] = []
    done = 0
    for place, fact in zip(places, facts, strict=True):
        mixed += filler[done:place]
        mixed.append(fact)
        done = place
    return mixed + list(filler[done:])


def _word_problem(rng: random.Random, *, held_out: bool) -> Task:
    name, things = rng.choice(_NAMES), rng.choice(_THINGS)
    value = rng.randint(5, 60)
    sentences = [_pick(rng, _START, _START_HELD_OUT, held_out).format(name=name, n=value, things=things)]
    work = []
    for _ in range(rng.randint(1, 3)):
        time = rng.choice(_TIMES)
        words = {"name": name, "things": things, "time": time, "Time": time.capitalize()}
        kind = rng.random()
        if kind < 0.2 and value <= 40:
            k = rng.randint(2, 4)
            sentences.append(_pick(rng, _DOUBLE, _DOUBLE_HELD_OUT, held_out).format(k=k, **words))
            work.append(f"{value} * {k} = {value * k}.")
            value *= k
            continue
        lose = kind > 0.6 and value > 3
        n = rng.randint(1, value - 1) if lose else rng.randint(2, 60)
        verb = rng.choice(_LOSE if lose else _GAIN)
        sentences.append(_pick(rng, _CHANGE, _CHANGE_HELD_OUT, held_out).format(verb=verb, n=n, **words))
        work.append(f"{value} {'-' if lose else '+'} {n} = {value - n if lose else value + n}.")
        value += -n if lose else n
    sentences.append(_pick(rng, _ASK, _ASK_HELD_OUT, held_out).format(name=name, things=things))
    return Task(" ".join(sentences), " ".join(work), str(value))


def _pick(rng: random.Random, train: Sequence[str], held_out: Sequence[str], is_held_out: bool) -> str:
    return rng.choice(held_out if is_held_out else train)


def _choice(rng: random.Random, *, held_out: bool) -> Task:
    question, right, wrong, work = rng.choice(_CHOICES)(rng, held_out)
    options = [right, *wrong]
    rng.shuffle(options)
    return Task(question, work, "ABCD"[options.index(right)], tuple(options))


_Choice = tuple[str, str, list[str], str]
"""Question, right answer, three wrong ones, and the reasoning."""
_SUM = (
    "What is {a} {op} {b}?",
    "Which number is {a} {op} {b}?",
    "How much is {a} {op} {b}?",
    "{a} {op} {b} is which number?",
)
_SUM_HELD_OUT = ("What number is {a} {op} {b}?", "Which of these is {a} {op} {b}?")
_EXTREME = (
    "Which number is the {word}?",
    "What is the {word} number?",
    "Which of these is the {word} number?",
    "Find the {word} number.",
)
_EXTREME_HELD_OUT = ("Which is the {word} of these?", "What is the {word} of these?")
_SERIES = (
    "Which number continues {shown}?",
    "What comes after {shown}?",
    "{shown}: what is the next number?",
    "Find the next number: {shown}.",
)
_SERIES_HELD_OUT = ("Which number comes after {shown}?", "What is the next number after {shown}?")
_OWNER = ("Who has the {thing}?", "Which one has the {thing}?", "Find who has the {thing}.", "The {thing}: who has it?")
_OWNER_HELD_OUT = ("Which of these has the {thing}?",)
_HAS = (
    "The {thing} is with {name}.",
    "The owner of the {thing} is {name}.",
    "The one who has the {thing} is {name}.",
    "As to the {thing}, {name} has it.",
)
_HAS_HELD_OUT = ("The one with the {thing} is {name}.", "The {thing}: the owner is {name}.")
"""What is asked for stands behind what it is found by, here and in the reasoning: only so does the model look it up."""


def _sum_choice(rng: random.Random, held_out: bool) -> _Choice:
    a, b, plus = rng.randint(10, 90), rng.randint(2, 60), rng.random() < 0.5
    if not plus:
        a = a + b
    right = a + b if plus else a - b
    text = _pick(rng, _SUM, _SUM_HELD_OUT, held_out).format(a=a, b=b, op="+" if plus else "-")
    return text, str(right), _near(rng, right), f"{a} {'+' if plus else '-'} {b} = {right}."


def _extreme_choice(rng: random.Random, held_out: bool) -> _Choice:
    word = rng.choice(("largest", "smallest"))
    numbers = sorted(rng.sample(range(10, 100), 4), reverse=word == "largest")
    right, *wrong = map(str, numbers)
    return _pick(rng, _EXTREME, _EXTREME_HELD_OUT, held_out).format(word=word), right, wrong, f"The {word} is {right}."


def _series_choice(rng: random.Random, held_out: bool) -> _Choice:
    start, step = rng.randint(1, 30), rng.randint(2, 12)
    shown = ", ".join(str(start + step * i) for i in range(4))
    last, right = start + step * 3, start + step * 4
    text = _pick(rng, _SERIES, _SERIES_HELD_OUT, held_out).format(shown=shown)
    return text, str(right), _near(rng, right), f"The step is {step}. {last} + {step} = {right}."


def _owner_choice(rng: random.Random, held_out: bool) -> _Choice:
    owners = _owners(rng, 4)
    facts = _told(owners, rng, held_out)
    thing, right = rng.choice([*owners.items()])
    question = _pick(rng, _OWNER, _OWNER_HELD_OUT, held_out).format(thing=thing)
    wrong = [name for name in owners.values() if name != right]
    return f"{facts} {question}", right, wrong, f"The {thing} is with {right}."


def _owners(rng: random.Random, count: int) -> dict[str, str]:
    """Names by what they have."""
    names, adjectives, words = (rng.sample(some, count) for some in (_NAMES, _ADJECTIVES, _WORDS))
    return {f"{a} {word}": name for name, a, word in zip(names, adjectives, words, strict=True)}


def _told(owners: Mapping[str, str], rng: random.Random, held_out: bool) -> str:
    return " ".join(
        _pick(rng, _HAS, _HAS_HELD_OUT, held_out).format(name=name, thing=thing) for thing, name in owners.items()
    )


def _near(rng: random.Random, right: int) -> list[str]:
    """Three other numbers, as wrong as a slip is."""
    near = [right + d for d in (-20, -11, -10, -9, -2, -1, 1, 2, 9, 10, 11, 20) if right + d >= 0]
    return list(map(str, rng.sample(near, 3)))


_CHOICES = (_sum_choice, _extreme_choice, _series_choice, _owner_choice)


def draw_letters(rng: random.Random) -> Task:
    """Four options and one of them: which letter is it? An exercise for training, as this is what is learned last."""
    kind, letter = rng.random(), rng.randrange(4)
    if kind < 0.5:
        near = rng.randint(2, 150)
        options = [str(near), *_near(rng, near)]
        rng.shuffle(options)
    else:
        options = rng.sample(_NAMES, 4) if kind < 0.75 else list(map(str, rng.sample(range(2, 150), 4)))
    return Task("", f"{options[letter]}.", "ABCD"[letter], tuple(options))


def draw_owners(rng: random.Random) -> RecallText:
    """Who has what, and who has each of it? An exercise for training: a choice asks only once, and half of the seeds guess."""
    owners = _owners(rng, rng.randint(2, 6))
    asked = rng.sample([*owners.items()], len(owners))
    return RecallText(
        _told(owners, rng, held_out=False),
        tuple(Lookup(f"\nThe {thing} is with", f" {name}", ".") for thing, name in asked),
    )


_REMAINDER = (
    "Find the remainder when {a} + {b} is divided by 10.", "What is the last digit of {a} + {b}?",
    "Add {a} and {b}, then find the last digit.", "Add {a} and {b}. What is the remainder when it is divided by 10?",
    "What is the remainder when {a} + {b} is divided by 10?", "Find the last digit when {a} and {b} are added.",
)  # fmt: skip
_REMAINDER_HELD_OUT = ("Add {a} and {b}, then find the remainder when it is divided by 10.",)
_SUM3 = (
    "Find the sum of {a}, {b} and {c}.", "Add {a}, {b} and {c}.", "What is {a} + {b} + {c}?",
    "What is the number when {a}, {b} and {c} are added?", "{a}, {b} and {c}: what is the sum?",
)  # fmt: skip
_SUM3_HELD_OUT = ("What is the sum of {a}, {b} and {c}?",)
_ROOT = (
    "Find x where x + {b} = {s}.", "Let x + {b} = {s}. Find x.", "What is x where x + {b} = {s}?", "x + {b} = {s}. What is x?",
    "What is x? Let x + {b} = {s}.", "Let x + {b} = {s}. What number is x?",
)  # fmt: skip
_ROOT_HELD_OUT = ("Let x + {b} = {s}. What is x?",)


def _integer(rng: random.Random, *, held_out: bool) -> Task:
    a, b, c = (rng.randint(5, 60) for _ in range(3))
    kind = rng.randrange(3)
    if kind == 0:
        last = (a + b) % 10
        question = _pick(rng, _REMAINDER, _REMAINDER_HELD_OUT, held_out).format(a=a, b=b)
        return Task(question, f"{a} + {b} = {a + b}. The last digit is {last}.", str(last))
    if kind == 1:
        question = _pick(rng, _SUM3, _SUM3_HELD_OUT, held_out).format(a=a, b=b, c=c)
        return Task(question, f"{a} + {b} = {a + b}. {a + b} + {c} = {a + b + c}.", str(a + b + c))
    question = _pick(rng, _ROOT, _ROOT_HELD_OUT, held_out).format(b=b, s=a + b)
    return Task(question, f"x = {a + b} - {b} = {a}.", str(a))


_WEATHER = ("sunny", "cloudy", "rainy", "windy", "cold", "warm", "foggy", "dry")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_REPORT = (
    "On {day} it was {weather} in the {place}.", "The {place} was {weather} on {day}.",
    "{name} went to the {adjective} {place} and found {n} {things}.", "In the {adjective} {place} {name} met {other}.",
    "{name} and {other} walked from the {place} to the {word}.", "The {word} near the {place} is {adjective}.",
    "{name} gave {n} {things} to {other} on {day}.", "There is a {adjective} {word} behind the {place}.",
    "After the {word} {name} stayed in the {place} until {day}.", "{other} said that the {word} was {adjective}.",
)  # fmt: skip
_REPORT_HELD_OUT = (
    "On {day} {name} went to the {place} and met {other}.", "The {word} behind the {adjective} {place} was {weather}.",
    "{other} walked to the {adjective} {word} near the {place}.", "{name} said that there is a {word} in the {place}.",
)  # fmt: skip


def draw_report(rng: random.Random, length: int, *, held_out: bool) -> str:
    """Sentences about a few people and places, about `length` bytes; each text keeps to its own few."""
    names, places = rng.sample(_NAMES, 3), rng.sample(_PLACES, 3)
    words, adjectives, things = rng.sample(_WORDS, 4), rng.sample(_ADJECTIVES, 3), rng.sample(_THINGS, 2)
    made: list[str] = []
    while length > 0:
        name, other = rng.sample(names, 2)
        sentence = rng.choice(_REPORT_HELD_OUT if held_out else _REPORT).format(
            name=name, other=other, place=rng.choice(places), word=rng.choice(words), adjective=rng.choice(adjectives),
            things=rng.choice(things), n=rng.randint(2, 20), day=rng.choice(_DAYS), weather=rng.choice(_WEATHER),
        )  # fmt: skip
        made.append(sentence)
        length -= len(sentence) + 1
    return " ".join(made)
