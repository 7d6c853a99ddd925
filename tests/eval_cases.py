"""Questions and completions for parity with the originals: made here, never taken from a data set.

The same seed gives the same cases, so goldens hold only what the originals said.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

CASES = 360
SEED = 20251121

_TAILS = (
    "",
    ".",
    "!",
    " ",
    "\n",
    " dollars.",
    " apples in all.",
    "%",
    " km/h",
    "**",
    "\n\nQuestion: What is next?",
    "…",
)
ANSWER_TAILS = ("", "", "", " ", "\n", "\nDone.", ".", "**")
ANSWER_LEADS = (
    "Answer: ",
    "ANSWER :",
    "so\nanswer:\t",
    "Answer: x\nAnswer: ",
    "**Answer:** ",
    "Answer:\n",
    "the answer is: ",
    "Answer: 1 ",
)
_LEADS = (
    "",
    "So ",
    "The answer is ",
    "#### ",
    "Answer: ",
    "ANSWER :",
    "= ",
    "**Answer:** ",
    "Let me think. ",
    "答案：",
)


def write_gsm8k(path: Path) -> list[str]:
    """JSONL of sums; returns the expected integers as text."""
    rng, rows, expected = random.Random(SEED), [], []
    for number in range(CASES):
        left, right = rng.choice([3, 17, 250, 1999]), rng.randrange(1, 4000)
        total = left + right
        shown = f"{total:,}" if rng.random() < 0.3 else str(total)
        question = f"Case {number}: a shop has {left} boxes and gets {right} more. How many boxes are there?"
        rows.append({"question": question, "answer": f"{left}+{right}=<<{left}+{right}={total}>>{total}\n#### {shown}"})
        expected.append(str(total))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return expected


def write_gpqa(path: Path) -> None:
    """CSV with the columns of simple-evals' file, with quotes, line feeds, LaTeX, numbers, and texts pandas takes for NaN."""
    rng = random.Random(SEED + 1)
    odd = ["None", "NA", 'a "quoted" text', "two\nlines", "$\\frac{1}{2}$", "1.50", "007", "ß → {A}", "(B)", "null"]
    header = ["Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3", "Other"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for number in range(CASES):
            choices = [f"choice {number}.{i}" for i in range(4)]
            for i in range(4):
                if rng.random() < 0.1:
                    choices[i] = rng.choice(odd) + (f" {i}" if rng.random() < 0.5 else "")
            writer.writerow([f"Case {number}: which one, with {{braces}} and 100%?", *choices, "x"])


def write_aime(path: Path) -> list[str]:
    """JSONL as NeMo-Skills writes it; returns the expected answers."""
    rng = random.Random(SEED + 2)
    expected = [str(rng.choice([0, 7, 16, 70, 82, 104, 336, 588, 999, rng.randrange(1000)])) for _ in range(CASES)]
    rows = [
        {
            "id": f"aime25-{number}",
            "problem": f"Case {number}: find $x$ with $\\sqrt{{x}}={number}$.",
            "expected_answer": one,
        }
        for number, one in enumerate(expected)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return expected


def write_mmlu(folder: Path) -> None:
    """dev/ and test/ of three subjects, one with columns of numbers, one with examples too long for the limit."""
    rng = random.Random(SEED + 3)
    for part, count in (("dev", 5), ("test", CASES // 3)):
        (folder / part).mkdir(parents=True)
        for subject in ("abstract_algebra", "high_school_long_texts", "number_tables"):
            with (folder / part / f"{subject}_{part}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                for number in range(count):
                    text = "long " * 420 if subject.startswith("high") and part == "dev" else ""
                    plain = [rng.choice(["None", "a, b", '"q"', "N/A", "x²"]) + f" {i}" for i in range(4)]
                    numbers = [str(rng.randrange(100)), f"{rng.randrange(10):03d}", f"{rng.random():.2f}", "1e3"]
                    choices = numbers if subject.startswith("number") else plain
                    writer.writerow([f"{text}Case {number} of {subject}?", *choices, rng.choice("ABCD")])


def numbers(expected: list[str], seed: int, leads: Sequence[str] = _LEADS, tails: Sequence[str] = _TAILS) -> list[str]:
    """Completions around integers: right, wrong, signs, commas, fractions, leading zeros, LaTeX, nothing, cut short."""
    rng = random.Random(seed)
    forms: list[Callable[[str], str]] = [
        lambda t: t,
        lambda t: f"{int(t):,}",
        lambda t: f"{t}.00",
        lambda t: f"{t}.0",
        lambda t: f"{t}.",
        lambda t: f"-{t}",
        lambda t: f"0{t}",
        lambda t: f"00{t}",
        lambda t: f"${t}$",
        lambda t: f"\\boxed{{{t}}}",
        lambda t: f"{t} or {int(t) + 1}",
        lambda t: f"{int(t) + 1}, no, {t}",
        lambda t: f"{t}e3",
        lambda t: f"{t[:-1] or '0'}",
        lambda t: f"{t}/1",
        lambda t: f"{t[0]} {t[1:]}",
        lambda t: t.translate({ord(str(d)): chr(0x0660 + d) for d in range(10)}),
        lambda t: f"{t}²",
        lambda t: f"１{t}",
        lambda _: "",
        lambda _: "I do not know",
        lambda _: "...,,,",
        lambda t: f"1_{t}",
        lambda t: f"{t}" + "0" * 30,
        lambda t: "9" * (5000 if len(t) == 1 else 50),  # Python reads no more than 4,300 digits
        lambda t: f"0x{t}",
        lambda _: "0",
        lambda _: "00",
        lambda _: "-",
        lambda t: f"<answer>{t}</answer> in 2 steps",
    ]
    out = []
    for i, right in enumerate(expected):
        value = right if rng.random() < 0.6 else str(max(0, int(right) + rng.choice([-1, 1, 10, 100])))
        form = forms[i % len(forms)] if rng.random() < 0.8 else forms[0]
        out.append(f"{rng.choice(leads)}{form(value)}{rng.choice(tails)}")
    return out


def letters(expected: list[str], seed: int) -> list[str]:
    """Completions around one letter."""
    rng = random.Random(seed)
    forms: list[Callable[[str, str], str]] = [
        lambda a, _: f"Answer: {a}",
        lambda a, _: f"answer:{a}",
        lambda a, _: f"ANSWER  :\n {a})",
        lambda a, _: f"Answer: {a.lower()}",
        lambda a, _: f"Answer: ({a})",
        lambda a, _: f"Answer: **{a}**",
        lambda a, _: f"**Answer:** {a}",
        lambda a, _: f"Answer: $\\boxed{{{a}}}$",
        lambda a, b: f"Answer: {b}\nWait. Answer: {a}",
        lambda a, b: f"Answer: {a}\nAnswer: {b}",
        lambda a, b: f"<think>maybe Answer: {b}</think>\nAnswer: {a}",
        lambda a, _: f"{a}",
        lambda a, _: f" {a}. because",
        lambda a, _: f"\n\t{a}",
        lambda a, _: f"The final answer is {a}",
        lambda a, _: f"My answer : {a}pple",
        lambda a, _: f"Answer： {a}",
        lambda _a, _b: "Answer: E",
        lambda _a, _b: "Answer: $LETTER",
        lambda _a, _b: "",
        lambda _a, _b: "   \n ",
        lambda _a, _b: "Answer:",
        lambda a, _: f"Reanswer: {a}",
        lambda a, _: a.lower(),
        lambda a, _: f"({a})",
        lambda a, _: f"Answer: all of A to D, so {a}",
        lambda a, _: f"Answer:\u00a0{a}",
        lambda a, _: chr(ord(a) - ord("A") + 0xFF21),
    ]
    out = []
    for i, right in enumerate(expected):
        other = rng.choice([letter for letter in "ABCD" if letter != right])
        value, wrong = (right, other) if rng.random() < 0.6 else (other, right)
        out.append(forms[i % len(forms)](value, wrong) + rng.choice(["", ".", "\nDone.", " 🙂"]))
    return out


def boxed(expected: list[str], seed: int) -> list[str]:
    """Completions around NeMo-Skills' grader: boxes, nested, broken, LaTeX, units, percent, words, sums, several."""
    rng = random.Random(seed)
    forms: list[Callable[[str], str]] = [
        lambda t: f"\\boxed{{{t}}}",
        lambda t: f"$\\boxed{{{t}}}$.",
        lambda t: f"\\boxed{{0{t}}}",
        lambda t: f"\\boxed{{00{t}}}",
        lambda t: f"\\boxed{{ {t} }}",
        lambda t: f"\\boxed{{{t}.0}}",
        lambda t: f"\\boxed{{{t}.}}",
        lambda t: f"\\boxed{{{t}\\%}}",
        lambda t: f"\\boxed{{{t}%}}",
        lambda t: f"\\boxed{{\\text{{{t}}}}}",
        lambda t: f"\\boxed{{{t}^\\circ}}",
        lambda t: f"\\boxed{{{t}\\text{{ cm}}}}",
        lambda t: f"\\boxed{{x={t}}}",
        lambda t: f"\\boxed{{m+n={t}}}",
        lambda t: f"\\boxed{{\\frac{{{2 * int(t)}}}{{2}}}}",
        lambda t: f"\\boxed{{\\dfrac{{{t}}}{{1}}}}",
        lambda t: f"\\boxed{{\\sqrt{{{int(t) ** 2}}}}}",
        lambda t: f"\\boxed{{{int(t) - 1}+1}}",
        lambda t: f"\\boxed{{{t},{t}}}",
        lambda t: f"\\boxed{{{t[0]},{t[1:]}}}" if len(t) > 1 else "\\boxed{,}",
        lambda t: f"\\boxed{{\\${t}}}",
        lambda t: f"\\boxed{{-{t}}}",
        lambda t: f"\\boxed{{1}} and then \\boxed{{{t}}}",
        lambda t: f"\\boxed{{{t}}} then \\boxed{{1}}",
        lambda t: f"\\boxed{{{t}",
        lambda t: f"\\boxed {t}",
        lambda t: f"\\boxed {{{t}}}",
        lambda t: f"\\fbox{{{t}}}",
        lambda t: f"The final answer is {t}",
        lambda t: f"Answer: {t}",
        lambda _: "",
        lambda _: "\\boxed{}",
        lambda _: "\\boxed{no solution}",
        lambda _: "\\boxed{\\text{none}}",
        lambda t: f"\\boxed{{\\mathbf{{{t}}}}}",
        lambda t: f"\\boxed{{{t}\\,}}",
        lambda t: f"\\boxed{{({t})}}",
        lambda t: f"\\boxed{{\\{{{t}\\}}}}",
        lambda t: f"\\boxed{{{t} \\pmod{{1000}}}}",
        lambda t: f"\\boxed{{\\approx {t}}}",
        lambda t: f"\\boxed{{{t}\\ldots}}",
        lambda t: f"\\boxed{{$ {t} $}}",
        lambda t: f"\\boxed{{\\({t}\\)}}",
        lambda t: f"\\boxed{{{t}}}}}",
        lambda t: f"\\boxed{{{t}e0}}",
        lambda t: f"\\boxed{{{int(t) + 1000}}}",
    ]
    out = []
    for i, right in enumerate(expected):
        value = right if rng.random() < 0.65 else str(max(0, int(right) + rng.choice([-1, 1, 7])))
        out.append(
            rng.choice(["", "Thus ", "So we get ", "**Final**\n"]) + forms[i % len(forms)](value) + rng.choice(_TAILS)
        )
    return out
