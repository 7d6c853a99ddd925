"""Our scores against those of the originals (tests/wheels/make_eval_goldens.py), question by question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsabench.evals.ask import Target
from dsabench.evals.graders import SCORERS
from dsabench.evals.run import Effort, run
from dsabench.evals.sample import EvalSample
from dsabench.evals.sample_log import open_log
from dsabench.evals.statistics import majority, pass_at_k, spread_of_runs
from dsabench.evals.summarise import tally
from eval_replay import digest_of, replays
from openai_server import OpenAiServer

GOLDENS = Path(__file__).parents[2] / "golden" / "evals"
REPLAYS = replays()


@pytest.mark.parametrize("name", sorted(REPLAYS))
async def test_every_question_scores_as_in_the_original(tmp_path, name) -> None:
    golden = json.loads((GOLDENS / f"{name}.json").read_text())
    replay = REPLAYS[name](tmp_path)
    assert len(golden["cases"]) >= 300
    assert [case[0] for case in golden["cases"]] == replay.completions
    assert {case[-1] for case in golden["cases"]} == {0, 1}
    async with OpenAiServer(replay.turn) as server:
        with open_log(tmp_path / "samples.jsonl") as log:
            await run(replay.plan, Target(server.url, "scripted"), log, Effort(64, 30.0))
        counted = tally(log.samples, [question.id for question in replay.plan.questions])
    samples = [of_question[0] for of_question in counted.questions.values()]
    assert counted.failed == 0  # each prompt is known to the server, so it is what the original sent
    differing = [
        (sample.completion, sample.original_answer, case)
        for sample, case in zip(map(EvalSample.as_original, samples), golden["cases"], strict=True)
        if sample.score != case[-1]
    ]
    assert differing == []
    if golden["prompts_sha256"] is not None:
        assert digest_of([sample.prompt for sample in samples]) == golden["prompts_sha256"]
    if golden["mean"] is not None:
        assert sum(sample.as_original().score for sample in samples) / len(samples) == pytest.approx(
            golden["mean"], abs=1e-12
        )


async def test_no_answer_is_told_where_the_originals_tell_it(tmp_path) -> None:
    for name, is_none in (("gsm8k", lambda said: said == 1), ("aime25", lambda said: said is None)):
        golden = json.loads((GOLDENS / f"{name}.json").read_text())
        (tmp_path / name).mkdir()
        plan = REPLAYS[name](tmp_path / name).plan
        score = SCORERS[plan.spec.scorer]
        for text, expected, said, _ in golden["cases"]:
            cut = text.split("Question")[0] if name == "gsm8k" else text
            answer = score(cut, expected).answer
            assert (answer is None) == is_none(said), (name, text)
            if name == "aime25":
                assert answer == said


def test_repeats_are_put_together_as_nemo_skills_does() -> None:
    golden = json.loads((GOLDENS / "aime25.json").read_text())
    cases, metrics = golden["cases"], golden["metrics"]
    questions = [cases[start : start + 4] for start in range(0, len(cases), 4)]
    scores = [[case[-1] for case in question] for question in questions]
    for k in (2, 3, 4):
        voted = [
            majority([case[2] for case in question[:k]], [case[-1] for case in question[:k]]) for question in questions
        ]
        assert 100 * sum(voted) / len(voted) == pytest.approx(metrics[f"majority@{k}"]["symbolic_correct"], abs=1e-9)
        passed = [pass_at_k(of_question, k) for of_question in scores]
        assert 100 * sum(passed) / len(passed) == pytest.approx(metrics[f"pass@{k}"]["symbolic_correct"], abs=1e-9)
    of_four = metrics["pass@1[avg-of-4]"]
    assert 100 * sum(map(sum, scores)) / len(cases) == pytest.approx(of_four["symbolic_correct"], abs=1e-9)
    spread = of_four["symbolic_correct_statistics"]["std_dev_across_runs"]
    assert spread_of_runs(scores) == pytest.approx(spread, abs=1e-12)
