"""The gate over whole runs: a scripted server whose variant is right less often, compared as a user would."""

from __future__ import annotations

import json

import pytest

from dsabench.cli.main import run as dsabench
from dsabench.config.load import load_eval
from dsabench.errors import InputError
from dsabench.evals.ask import Target
from dsabench.evals.compare import ComparedEval, compare_evals
from dsabench.evals.plan import Wishes, make_plan
from dsabench.evals.run import Effort, run
from dsabench.evals.sample_log import open_log, read_samples
from eval_cases import write_gsm8k
from openai_server import OpenAiServer, Turn


async def answered(tmp_path, name, *, wrong: int, count: int = 360, repeat: int = 1, eval_: str = "gsm8k"):
    """Samples of a run over `count` questions whose first `wrong` are answered wrongly."""
    data = tmp_path / "data.jsonl"
    write_gsm8k(data)
    plan = make_plan(load_eval(eval_), Wishes(num_shots=1, num_examples=count, repeat=repeat), "scripted", data)
    order = {question.prompt: number for number, question in enumerate(plan.questions)}
    right = {question.prompt: question.expected for question in plan.questions}
    script = lambda prompt: Turn("0" if order.get(prompt, 0) < wrong else right[prompt])  # noqa: E731
    path = tmp_path / f"{name}.jsonl"
    async with OpenAiServer(script) as server:
        with open_log(path) as log:
            await run(plan, Target(server.url, "scripted"), log, Effort(64, 30.0))
    return path


def verdict(capsys, *words: str) -> dict:
    code = dsabench(["compare", *words, "--json"])
    return {"code": code, **json.loads(capsys.readouterr().out)[0]}


async def test_three_points_worse_is_no_and_few_questions_are_inconclusive(tmp_path, capsys) -> None:
    base = await answered(tmp_path, "base", wrong=10)
    worse = await answered(tmp_path, "worse", wrong=21)
    said = verdict(capsys, str(base), str(worse), "--margin", "0.01", "--gate")
    assert (said["verdict"], said["code"], said["unit"]) == ("worse", 1, "points")
    assert said["effect"] == pytest.approx(-11 / 360)
    equal = await answered(tmp_path, "equal", wrong=10)
    said = verdict(capsys, str(base), str(equal), "--margin", "0.01", "--gate")
    assert (said["verdict"], said["code"]) == ("no difference", 0)
    assert said["reason"].startswith("yes")
    few = [await answered(tmp_path, f"few{wrong}", wrong=wrong, count=20) for wrong in (1, 2)]
    said = verdict(capsys, *map(str, few), "--margin", "0.01", "--gate")
    assert (said["verdict"], said["code"]) == ("inconclusive", 1)
    assert "more repeats" in said["reason"]


async def test_the_same_run_is_no_evidence_of_anything_else(tmp_path, capsys) -> None:
    base = await answered(tmp_path, "base", wrong=1, count=20)
    said = verdict(capsys, str(base), str(base), "--margin", "0.01")
    assert (said["verdict"], said["reason"]) == ("no difference", "yes: both sides are the same run")


async def test_harnesses_are_never_mixed(tmp_path, capsys) -> None:
    base = await answered(tmp_path, "base", wrong=1, count=20)
    clean = await answered(tmp_path, "clean", wrong=1, count=20, eval_="gsm8k-clean")
    assert dsabench(["compare", str(base), str(clean), "--margin", "0.01"]) == 2
    assert "no eval in common" in capsys.readouterr().err
    sides = [ComparedEval(str(path), "gsm8k", read_samples(path)) for path in (base, clean)]
    with pytest.raises(InputError, match="cannot be compared"):
        compare_evals(*sides, 0.01)
