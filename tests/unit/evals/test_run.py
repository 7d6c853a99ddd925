"""The runner against a server that misbehaves on request."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from dsabench.config.load import load_eval
from dsabench.errors import BusyError, StoreError, TrialFault
from dsabench.evals.ask import Target
from dsabench.evals.plan import Plan, Wishes, make_plan
from dsabench.evals.run import Effort, run
from dsabench.evals.sample_log import open_log, read_samples
from dsabench.evals.summarise import summarise, tally
from eval_cases import write_aime, write_gsm8k
from openai_server import OpenAiServer, Turn

QUICK = Effort(concurrency=8, timeout_s=5.0, retries=1)


@pytest.fixture
def plan(tmp_path) -> Plan:
    data = tmp_path / "data.jsonl"
    write_gsm8k(data)
    return make_plan(load_eval("gsm8k-clean"), Wishes(num_shots=1, num_examples=30, repeat=2), "scripted", data)


def right(plan: Plan, **more):
    expected = {question.prompt: question.expected for question in plan.questions}
    return lambda prompt: Turn(f"It is {expected[prompt]}", **more)


async def test_both_kinds_of_answer_are_read_and_counted(tmp_path, plan) -> None:
    for streams in (True, False):
        path = tmp_path / f"{streams}.jsonl"
        async with OpenAiServer(right(plan, reasoning="thinking…"), streams=streams) as server:
            with open_log(path) as log:
                pace = await run(plan, Target(server.url, "scripted"), log, QUICK)
        samples = read_samples(path)
        assert len(samples) == 60
        assert {sample.standing for sample in samples} == {"correct"}
        assert {(sample.completion_tokens, sample.prompt_tokens) for sample in samples} == {(3, 7)}
        assert pace.completion_tokens == 180
        assert {sample.reasoning for sample in samples} == {"thinking…"}
        assert server.most_in_flight <= 8


async def test_the_request_is_what_the_eval_says(tmp_path, plan) -> None:
    plan = make_plan(load_eval("aime25"), Wishes(repeat=1), "deepseek-ai/DeepSeek-V3.2-Speciale", _aime(tmp_path))
    async with OpenAiServer(lambda _: Turn("\\boxed{7}")) as server:
        with open_log(tmp_path / "a.jsonl") as log:
            await run(plan, Target(server.url, "x", api_key="sk-very-secret-key"), log, QUICK)
    body = server.asked[0]
    assert body["chat_template_kwargs"] == {"thinking": True}
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (1.0, 0.95, 120000)
    assert server.headers[0]["Authorization"] == "Bearer sk-very-secret-key"
    assert "very-secret" not in (tmp_path / "a.jsonl").read_text()


def _aime(tmp_path):
    write_aime(tmp_path / "aime.jsonl")
    return tmp_path / "aime.jsonl"


async def test_a_passing_fault_is_retried_and_counted(tmp_path, plan) -> None:
    seen: dict[str, int] = {}
    answer = right(plan)

    def script(prompt: str) -> Turn:
        seen[prompt] = seen.get(prompt, 0) + 1
        return Turn(status=503) if seen[prompt] == 1 else answer(prompt)

    async with OpenAiServer(script) as server:
        with open_log(tmp_path / "a.jsonl") as log:
            pace = await run(plan, Target(server.url, "scripted"), log, QUICK)
    assert pace.retries == 30
    assert {sample.standing for sample in log.samples} == {"correct"}
    assert sorted({sample.attempts for sample in log.samples}) == [1, 2]


async def test_what_stays_refused_fails_alone_and_is_asked_again_by_the_next_run(tmp_path, plan) -> None:
    bad = plan.questions[3].prompt
    answer = right(plan)
    async with OpenAiServer(lambda prompt: Turn(status=400) if prompt == bad else answer(prompt)) as server:
        with open_log(tmp_path / "a.jsonl") as log:
            await run(plan, Target(server.url, "scripted"), log, QUICK)
        assert len(server.prompts) == 60  # 400 is not retried
    counted = tally(log.samples)
    assert (counted.failed, counted.total) == (2, 60)
    scored = summarise(counted, duration_s=1.0, tokens=1)
    assert scored.metrics["score"].value == pytest.approx(58 / 60)
    assert "2 of 60 requests failed and count as wrong" in scored.warnings
    async with OpenAiServer(answer) as server:
        with open_log(tmp_path / "a.jsonl") as log:
            await run(plan, Target(server.url, "scripted"), log, QUICK)
        assert server.prompts == [bad, bad]


@pytest.mark.parametrize("breaks", [True, False])
async def test_a_dying_server_loses_no_finished_sample(tmp_path, plan, breaks) -> None:
    """The server stops after 20 answers; the next run asks for the others only."""
    path, answer = tmp_path / "a.jsonl", right(plan)
    server = OpenAiServer(answer)
    async with server:

        def script(prompt: str) -> Turn:
            if len(server.prompts) <= 20:
                return answer(prompt)
            asyncio.get_running_loop().create_task(server._runner.cleanup())
            return Turn("It is", breaks=breaks, delay_s=0 if breaks else 5.0)

        server.script = script
        with open_log(path) as log:
            with pytest.raises(TrialFault, match="is gone"):
                await run(plan, Target(server.url, "scripted"), log, QUICK)
            kept = {sample.id for sample in log.samples}
        assert len(kept) >= 13
    async with OpenAiServer(answer) as server:
        with open_log(path) as log:
            assert log.resumed == len(kept)
            await run(plan, Target(server.url, "scripted"), log, QUICK)
        assert len(server.prompts) == 60 - len(kept)
    assert len({sample.id for sample in read_samples(path)}) == 60


def test_a_torn_line_is_asked_again_and_two_runs_do_not_share_a_file(tmp_path, plan) -> None:
    path = tmp_path / "a.jsonl"
    with open_log(path) as log:
        asyncio.run(_some(plan, log))
        with pytest.raises(BusyError, match="runs already"), open_log(path):
            pass
    size = path.stat().st_size
    os.truncate(path, size - 20)
    with open_log(path) as log:
        assert log.resumed == 59
    assert path.read_bytes().endswith(b"\n")
    assert len(path.read_bytes().splitlines()) == 59


async def _some(plan, log) -> None:
    async with OpenAiServer(right(plan)) as server:
        await run(plan, Target(server.url, "scripted"), log, QUICK)


async def test_truncation_no_answer_and_thinking_are_told_apart(tmp_path, plan) -> None:
    kinds = [
        Turn("it is", finish="length"),
        Turn("no idea"),
        Turn("<think>5</think> so 5"),
        Turn("", finish="length"),
    ]
    number = {question.prompt: index for index, question in enumerate(plan.questions)}
    async with OpenAiServer(lambda prompt: kinds[number[prompt] % 4]) as server:
        with open_log(tmp_path / "a.jsonl") as log:
            await run(plan, Target(server.url, "scripted"), log, QUICK)
    counted = tally(log.samples)
    assert (counted.truncated, counted.no_answer, counted.thinking_in_content) == (30, 46, 14)
    assert any("--reasoning-parser" in warning for warning in summarise(counted, duration_s=None, tokens=None).warnings)


async def test_progress_tells_score_and_time_left(tmp_path, plan) -> None:
    told = []
    effort = Effort(concurrency=4, timeout_s=5.0, on_progress=told.append)
    async with OpenAiServer(right(plan)) as server:
        with open_log(tmp_path / "a.jsonl") as log:
            await run(plan, Target(server.url, "scripted"), log, effort)
    assert [at.done for at in told] == list(range(1, 61))
    assert told[-1].left_s == 0.0
    assert told[-1].score == 1.0
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])["harness_id"] == "sglang-run-eval-gsm8k"


async def test_a_record_that_cannot_be_written_loses_no_sample(tmp_path, plan) -> None:
    path, final = tmp_path / "a.partial.jsonl", tmp_path / "a-0.jsonl"
    async with OpenAiServer(right(plan)) as server:
        with open_log(path) as log:
            await run(plan, Target(server.url, "scripted"), log, QUICK)
            with pytest.raises(StoreError), log.finished_as(final):
                raise StoreError("journal.jsonl: disk full")
    assert not final.exists()
    with open_log(path) as log:
        assert log.resumed == 60
        with log.finished_as(final):
            pass
    assert len(read_samples(final)) == 60
    assert not path.exists()


async def test_a_torn_line_is_dropped_and_the_file_stays_locked(tmp_path, plan) -> None:
    path = tmp_path / "a.partial.jsonl"
    async with OpenAiServer(right(plan)) as server:
        with open_log(path) as log:
            await run(plan, Target(server.url, "scripted"), log, QUICK)
    with path.open("ab") as file:
        file.write(b'{"id": "torn')
    with open_log(path) as log:
        assert log.resumed == 60
        assert len(path.read_bytes().splitlines()) == 60
        with pytest.raises(BusyError), open_log(path):
            pass
    assert list(tmp_path.glob("*.new")) == []
