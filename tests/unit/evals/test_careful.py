"""Two graders of one answer, on answers that people reported as graded wrongly, and how the difference is told."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dsabench.cli.main import run as dsabench_here
from dsabench.evals import careful
from dsabench.evals.careful import grade, is_quick, read_letter, read_value
from dsabench.evals.sample import EvalSample
from dsabench.evals.sample_log import read_samples
from eval_cases import write_gpqa
from eval_process import dsabench
from openai_server import OpenAiServer, Turn

# sglang#29933: run-on text, a box before a remark, a remark in brackets.
GSM8K = {
    "Q01 run-on after the marker": (
        "18",
        " 9 * 2 = $18.\n#### 18\n\nQuestion: A robe takes 2 bolts of blue and half that of white.\nAnswer: 2 + 1 = 3\n#### 3",
    ),
    "Q06 boxed then a remark": ("540", " The total is \\boxed{540} meters over 3 sprints."),
    "Q07 units after": ("20", " The answer is 20 cups (for all 20 chickens, 3 meals a day)."),
    "Q08 plain": ("64", "#### 64"),
}
# NeMo Gym#1844, gpt-oss#254, frontier-evals#125, NeMo-Skills#1511, evalscope#1546: the letters with which each answer ends.
GPQA = {
    "Answer: {}": 0, "**Answer: {}**": 1, "**Answer:** {}": 2, "Answer: **{}**": 3, "Answer: ({})": 4, "Answer: ${}$": 5,
    "The answer is \\boxed{{{}}}": 6, "\\boxed{{\\text{{{}}}}}": 7,
    "Answer: {other}\nWait, that ignores the spin. I need to correct this.\nAnswer: {}": 8,
    "The last line must read Answer: $LETTER, so first I think. It is the third one.\nAnswer: {}": 9,
    "To find the answer: begin with the energy levels of the atom.\nAnswer: {}": 10, "The correct answer is {}.": 11,
    "Answer: {}\nNo, I made a slip.\nAnswer: {other}": 12, "answer: {small}": 13, "Answer: \\boxed{{{}}}": 14, "Answer: {other}": 15,
}  # fmt: skip


async def test_gsm8k_is_graded_twice_and_says_where_the_graders_differ(tmp_path) -> None:
    data = tmp_path / "gsm.jsonl"
    rows = [{"question": question, "answer": f"#### {right}"} for question, (right, _) in GSM8K.items()]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    script = lambda prompt: Turn(next((text for key, (_, text) in GSM8K.items() if key in prompt), "0"))  # noqa: E731
    words = ("gsm8k-clean", "--data", str(data), "--num-shots", "0")
    async with OpenAiServer(script) as server:
        code, out, err = await dsabench(*words, "--base-url", server.url, "--json", home=tmp_path)
        assert code == 0, err
        said = json.loads(out)
        _, shown, _ = await dsabench(*words, "--base-url", server.url, home=tmp_path)
    assert (said["score"], said["original_score"], said["differing"], said["n_invalid"]) == (1.0, 0.25, 3, 0)
    assert shown.splitlines()[1] == "Score: 0.250"  # as run_eval prints it
    assert "it takes another answer than a careful reader in 3 of 4" in shown
    assert "  gsm8k-1#0: read 18, the original took 3, expected 18" in shown
    page = next((tmp_path / "results").rglob("*.html")).read_text()
    assert page.count("the original's grader took") == 3
    assert "only where the graders differ (3)" in page


async def test_many_answers_that_name_none_are_warned_of(tmp_path) -> None:
    write_gpqa(tmp_path / "gpqa.csv")
    async with OpenAiServer(lambda prompt: Turn("Answer: A" if prompt.endswith("1") else "I cannot tell.")) as server:
        words = ("gpqa", "--data", str(tmp_path / "gpqa.csv"), "--base-url", server.url, "--json")
        code, out, err = await dsabench(*words, home=tmp_path)
    assert code == 0, err
    said = json.loads(out)
    assert any("answers name none" in line and line.startswith(f"{said['n_invalid']} of") for line in said["warnings"])


async def test_gpqa_is_graded_twice(tmp_path) -> None:
    data = tmp_path / "gpqa.csv"
    with data.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"]
        )
        writer.writerows([f"G{number:02}", "right", "no", "nor this", "nor that"] for number in GPQA.values())

    def script(prompt: str) -> Turn:
        lines = prompt.splitlines()
        letter = next((line[0] for line in lines if line.endswith(") right")), "A")
        form = next((form for form, number in GPQA.items() if f"G{number:02}" in prompt), "Answer: {}")
        other = "ABCD"[("ABCD".index(letter) + 1) % 4]
        return Turn("Some reasoning first.\n" + form.format(letter, other=other, small=letter.lower()))

    async with OpenAiServer(script) as server:
        words = ("gpqa", "--data", str(data), "--num-examples", "16", "--base-url", server.url, "--json")
        code, out, err = await dsabench(*words, home=tmp_path)
    assert code == 0, err
    said = json.loads(out)
    assert (said["score"] * 16, said["original_score"] * 16, said["n_invalid"]) == (14, 4, 0)
    assert said["metrics"]["original_no_answer"] * 16 == 8
    assert said["differing"] == 12
    # Published scores are the original grader's.
    assert all(one["line"].startswith("score 0.250") for one in said["published"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("So the profit is -5 dollars.", "-5"),
        ("The answer is $2.50.", "2.50"),
        ("The total is **$1,080**, over 3 days.", "1080"),
        ("**Answer: 18 eggs**\n\nNote: a week has 7 days.", "18"),
        ("Answer: 1158, no, 1157 apples", "1157"),
        ("The answer is 20. Wait, that is wrong. The answer is 30 cups for 3 days.", "30"),
        ("\\boxed{7} is too many. \\boxed{8}", "8"),
        ("\\boxed{\\$18\\text{ a day}}", "18"),
        ("ANSWER :605 apples", "605"),
        ("答案：18 个，3 天", "18"),
        ("<think>The answer is 7.</think>The answer is 8.", "8"),
        ("Let me restate it.\nQuestion: how many? Answer: 12", "12"),
        ("The answer is 104 or 105", None),
        ("I do not know.", None),
    ],
)
def test_values_are_read_as_a_person_does(text: str, value: str | None) -> None:
    assert read_value(text) == value


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer would be option B.", "B"),
        ("Answer: B or C", None),
        ("My answer: Apple", None),
        ("The answer is a matter of taste.", None),
        ("(C)", "C"),
        ("C. Because of the spin.", "C"),
        ("A good way to see it is to count.", None),
        ("<think>Answer: A</think>\nAnswer: D", "D"),
        ("\\boxed{\\mathrm{\\text{B}}}", "B"),
        ("答案是 D", "D"),
        ("正确答案：(B)", "B"),
    ],
)
def test_letters_are_read_as_a_person_does(text: str, letter: str | None) -> None:
    assert read_letter(text) == letter


def test_a_plain_answer_is_read_alike_without_math_verify() -> None:
    texts = [
        "#### 18",
        "16 - 3 = 13\n#### 1,080",
        "The answer is $18.",
        "the answer: -5",
        "answer is 2.50",
        "No: 3. #### 4",
    ]
    cases = [("last-number", text, "18") for text in texts]
    for eval_, name in (("gsm8k", "last-integer"), ("gsm8k-clean", "last-number")):
        golden = json.loads((Path(__file__).parents[2] / "golden" / "evals" / f"{eval_}.json").read_text())
        cases += [(name, text, expected) for text, expected, *_ in golden["cases"]]
    plain = [(text, value) for _, text, _ in cases if (value := careful._plain_value(text)) is not None]
    assert len(plain) > 30
    assert [(text, value) for text, value in plain if careful._value_in(careful._spoken(text)) != value] == []
    assert all(is_quick(name, text) == (careful._plain_value(text) is not None) for name, text, _ in cases)


def test_mathematics_without_a_box_has_a_careful_answer() -> None:
    grades = grade("nemo-math", "So the answer is $\\frac{36}{2}$.", "18")
    assert (grades.careful.correct, grades.original.correct, grades.differ) == (True, False, True)
    assert not grade("nemo-math", "\\boxed{18.0}", "18").differ
    assert grade("code", "1234567", "1234567").original is None


def test_sides_are_compared_by_one_grader(tmp_path, capsys) -> None:
    """The original's grader calls the candidate worse; samples of an earlier version have no other grade."""

    def write(name: str, *, careful: bool, original: float) -> str:
        grades = (
            {"score": 1.0, "original_score": original, "graders_differ": not original}
            if careful
            else {"score": original}
        )
        samples = [
            EvalSample(
                id=f"q{i}#0", question=f"q{i}", repeat=0, harness_id="h", prompt="p", completion="c", expected="1",
                standing="correct" if grades["score"] else "wrong", **grades,
            )
            for i in range(400)
        ]  # fmt: skip
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(sample.model_dump_json() + "\n" for sample in samples))
        assert read_samples(path) == tuple(samples)
        return str(path)

    def compared(*names: str) -> dict:
        dsabench_here(["compare", *names, "--margin", "0.01", "--json"])
        return json.loads(capsys.readouterr().out)[0]

    base, candidate = write("base", careful=True, original=1.0), write("candidate", careful=True, original=0.0)
    said = compared(base, candidate)
    assert (said["verdict"], said["effect"]) == ("no difference", 0.0)
    assert "the original's grader says -100.00 points and takes another answer in 400" in said["reason"]
    said = compared(write("old", careful=False, original=1.0), candidate)
    assert (said["verdict"], said["effect"]) == ("worse", -1.0)
    assert "graded as the eval's original does: one side has no other grade" in said["reason"]
