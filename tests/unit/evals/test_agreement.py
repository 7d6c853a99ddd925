"""Agreement with the default's own answers, over whole runs against a scripted server."""

from __future__ import annotations

import itertools

import pytest

from dsabench.config.load import load_eval
from dsabench.errors import InputError
from dsabench.evals.agreement import compare_agreement
from dsabench.evals.ask import Target
from dsabench.evals.compare import ComparedEval
from dsabench.evals.plan import Wishes, make_plan
from dsabench.evals.run import Effort, run
from dsabench.evals.sample_log import open_log
from eval_cases import write_gsm8k
from openai_server import OpenAiServer, Turn

COUNT = 200


async def side(tmp_path, name, *, changed=0, unsteady=0, repeat=2) -> ComparedEval:
    """Nobody is ever right. The first `changed` questions are answered otherwise than by the default, the next
    `unsteady` ones otherwise each time.
    """
    data = tmp_path / "data.jsonl"
    write_gsm8k(data)
    plan = make_plan(load_eval("gsm8k"), Wishes(num_shots=1, num_examples=COUNT, repeat=repeat), "scripted", data)
    order, calls = {question.prompt: number for number, question in enumerate(plan.questions)}, itertools.count()

    def script(prompt: str) -> Turn:
        place = order.get(prompt, 0)
        if place < changed:
            return Turn("otherwise")
        return Turn(f"{name} {next(calls)}" if place < changed + unsteady else "no idea")

    async with OpenAiServer(script) as server:
        with open_log(tmp_path / f"{name}.jsonl") as log:
            await run(plan, Target(server.url, "scripted"), log, Effort(64, 30.0))
            return ComparedEval(name, "gsm8k", tuple(log.samples), (name,))


async def test_other_answers_are_a_loss_though_none_is_right(tmp_path) -> None:
    default = await side(tmp_path, "default")
    verdict = compare_agreement(default, await side(tmp_path, "changed", changed=20), 0.05)
    assert (verdict.metric, verdict.verdict, verdict.n_base) == ("agreement", "worse", COUNT)
    assert verdict.effect == pytest.approx(-0.1)
    assert verdict.reason.startswith("no, less in agreement: -10.00 points")
    assert verdict.reason.endswith("answers as the default's first pass: 90.0%, the default itself 100.0%")
    same = compare_agreement(default, await side(tmp_path, "same"), 0.05)
    assert (same.verdict, same.effect) == ("no difference", 0.0)


async def test_what_the_default_does_not_repeat_is_not_charged_to_the_candidate(tmp_path) -> None:
    default = await side(tmp_path, "default", unsteady=40)
    verdict = compare_agreement(default, await side(tmp_path, "candidate", unsteady=40), 0.05)
    assert (verdict.verdict, verdict.effect) == ("no difference", 0.0)
    assert verdict.reason.endswith("80.0%, the default itself 80.0%")


async def test_where_the_default_repeats_nothing_nothing_can_be_lost(tmp_path) -> None:
    default = await side(tmp_path, "default", unsteady=COUNT)
    verdict = compare_agreement(default, await side(tmp_path, "candidate", changed=COUNT), 0.05)
    assert verdict.verdict == "inconclusive"
    assert "the base itself scores 0.00 points, so no loss could be larger" in verdict.reason


async def test_one_pass_of_the_default_is_nothing_to_hold_against(tmp_path) -> None:
    once = await side(tmp_path, "once", repeat=1)
    with pytest.raises(InputError, match="two passes"):
        compare_agreement(once, once, 0.05)
