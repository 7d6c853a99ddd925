"""`dsabench eval` as users and scripts call it, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from dsabench.config.load import load_eval
from dsabench.errors import InputError
from dsabench.evals.plan import Wishes, make_plan
from dsabench.evals.readers.demo import make_demo
from dsabench.evals.server import normal_url
from dsabench.results.journal import read_journal
from eval_cases import write_gpqa, write_gsm8k
from eval_process import dsabench, start
from openai_server import OpenAiServer, Turn
from studies import SHORT_EVAL


def script_of(data: Path, **more):
    answers = {row["question"]: row["answer"] for row in map(json.loads, data.read_text().splitlines())}

    def script(prompt: str) -> Turn:
        asked = prompt.rpartition("Question: ")[2].removesuffix("\nAnswer:")
        return Turn(answers.get(asked, "Paris"), **more)

    return script


@pytest.fixture
def data(tmp_path) -> Path:
    write_gsm8k(tmp_path / "data.jsonl")
    return tmp_path / "data.jsonl"


async def test_the_contract_for_automation(tmp_path, data) -> None:
    async with OpenAiServer(script_of(data)) as server:
        code, out, err = await dsabench(
            "gsm8k", "--base-url", server.url, "--data", str(data), "--num-examples", "25", "--num-shots", "3", "--json",
            home=tmp_path,
        )  # fmt: skip
    assert code == 0, err
    said = json.loads(out)  # stdout holds nothing else
    assert (said["eval"], said["harness_id"], said["score"], said["n"]) == ("gsm8k", "sglang-few-shot-gsm8k", 1.0, 25)
    assert (said["stderr"], said["n_invalid"], said["n_failed"], said["model"]) == (0.0, 0, 0, "scripted")
    samples = [json.loads(line) for line in Path(said["samples"]).read_text().splitlines()]
    assert len(samples) == 25
    assert {"id", "prompt", "completion", "answer", "score"} <= samples[0].keys()
    questions = [json.loads(line)["question"] for line in data.read_text().splitlines()]
    assert len(server.prompts) == 25
    first = next(sample for sample in samples if sample["question"] == "gsm8k-1")
    assert first["prompt"].count("Question: ") == 4
    assert first["prompt"].endswith(f"Question: {questions[0]}\nAnswer:")
    # The warm-up asked for nothing of the data set.
    assert not any(question in server.asked[0]["prompt"] for question in questions)
    (record,) = read_journal(tmp_path / "results" / "local-evals" / "journal.jsonl").records
    assert (record.trial.kind, record.outcome.kind) == ("eval", "scored")
    everything = "".join(file.read_text() for file in (tmp_path / "results").rglob("*") if file.is_file())
    assert "sk-secret" not in everything + out + err
    assert server.headers[-1]["Authorization"] == "Bearer sk-secret-of-this-test"


async def test_sglang_tells_how_many_drafts_it_accepts_of_text(tmp_path, data) -> None:
    words = ("gsm8k", "--data", str(data), "--num-examples", "5", "--num-shots", "3", "--json", "--no-html")
    async with OpenAiServer(script_of(data), accept_length=2.5) as server:
        code, out, err = await dsabench(*words, "--base-url", server.url, home=tmp_path)
    assert code == 0, err
    metrics = json.loads(out)["metrics"]
    assert (metrics["accept_length.mean"], metrics["accept_length.weighted"]) == (2.5, pytest.approx(2.5))
    assert all(body["return_spec_tokens_details"] for body in server.asked[1:])
    async with OpenAiServer(script_of(data)) as server:
        code, out, err = await dsabench(*words, "--base-url", server.url, home=tmp_path)
    assert code == 0, err
    assert "accept_length.mean" not in json.loads(out)["metrics"]
    assert not any("return_spec_tokens_details" in body for body in server.asked)  # others may refuse it


@pytest.mark.parametrize("fails", [False, True], ids=["finished", "unfinished"])
async def test_another_server_at_the_same_address_begins_anew(tmp_path, data, fails) -> None:
    answer, asked = script_of(data), 0

    def fails_later(prompt: str) -> Turn:
        nonlocal asked
        asked += 1
        return Turn(status=400) if fails and asked > 10 else answer(prompt)

    words = ("gsm8k", "--data", str(data), "--num-examples", "25", "--num-shots", "3", "--json", "--no-html")
    async with OpenAiServer(fails_later, accept_length=2.5) as server:
        first, out, err = await dsabench(*words, "--base-url", server.url, home=tmp_path)
        assert (first != 0) == fails, err
    async with OpenAiServer(answer, port=server.port) as other:
        code, out, err = await dsabench(*words, "--base-url", other.url, home=tmp_path)
    assert code == 0, err
    said = json.loads(out)
    assert (said["resumed"], said["n"], len(other.prompts)) == (0, 25, 25)
    assert len([*(tmp_path / "results").rglob("gsm8k-*.jsonl")]) == 2


@pytest.mark.slow
async def test_a_killed_run_goes_on_without_asking_twice_and_a_finished_one_begins_anew(tmp_path, data) -> None:
    async with OpenAiServer(script_of(data, delay_s=0.02)) as server:
        words = ("gsm8k", "--base-url", server.url, "--data", str(data), "--num-shots", "1", "--num-examples", "120")
        words += ("--parallel", "4", "--json", "--no-html")
        child = await start(*words, home=tmp_path)
        while len(server.prompts) < 60:
            await asyncio.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        await child.communicate()
        (partial,) = (tmp_path / "results").rglob("*.partial.jsonl")
        finished = [json.loads(line)["prompt"] for line in partial.read_bytes().decode().split("\n")[:-1]]
        before = len(server.prompts)
        code, out, err = await dsabench(*words, home=tmp_path)
        assert code == 0, err
        again = server.prompts[before:]
        said = json.loads(out)
        assert said["resumed"] == len(finished) >= 50
        assert not set(finished) & set(again)
        assert len(finished) + len(again) == said["n"] == 120
        assert not list((tmp_path / "results").rglob("*.partial.jsonl"))
        asked = len(server.prompts)
        code, out, err = await dsabench(*words, home=tmp_path)
        assert (json.loads(out)["resumed"], len(server.prompts) - asked) == (0, 120)


async def test_the_lines_that_users_know(tmp_path, data) -> None:
    write_gpqa(tmp_path / "gpqa.csv")
    async with OpenAiServer(lambda prompt: Turn("Answer: A")) as server:
        code, out, err = await dsabench(
            "gpqa",
            "--base-url",
            f"{server.url}/v1",
            "--data",
            str(tmp_path / "gpqa.csv"),
            "--repeat",
            "2",
            home=tmp_path,
        )
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("Repeat: 2, mean: 0.")
    assert lines[1].startswith("Scores: ['0.")
    assert any("published 0.797" in line for line in lines)
    own, theirs = (next(line for line in lines if line.startswith(f"  {name} ")) for name in ("passes", "theirs"))
    assert len(own.partition(": ")[2].split()) == 2
    assert theirs == "  theirs 0.783 to 0.808: 0.808 0.798 0.808 0.798 0.783 0.788 0.803 0.793"
    assert server.asked[-1]["chat_template_kwargs"] == {"thinking": True}


async def test_too_many_failures_give_no_score(tmp_path, data) -> None:
    async with OpenAiServer(lambda _: Turn(status=400)) as server:
        words = (
            "gsm8k",
            "--base-url",
            server.url,
            "--data",
            str(data),
            "--num-shots",
            "1",
            "--num-examples",
            "5",
            "--json",
        )
        code, out, err = await dsabench(*words, home=tmp_path)
    assert code == 3
    assert (json.loads(out)["scored"], json.loads(out)["n_failed"]) == (False, 5)
    assert err.count("error:") == 1
    assert "http 400" in err


BAD = {
    "no answer column": ('{"question": "1+1?"}\n', "no column 'answer'"),
    "empty answer": ('{"question": "1+1?", "answer": " "}\n', "answer is empty"),
    "no number": ('{"question": "1+1?", "answer": "two"}\n', "no number in the answer"),
    "truncated": ('{"question": "1+1?", "answer": "2"}\n{"question": "2+', "truncated"),
    "empty": ("", "holds no question"),
    "not an object": ("[1]\n", "not a JSON object"),
    "binary": ("\udcff", "not UTF-8"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_is_named_by_its_place(tmp_path, case) -> None:
    text, message = BAD[case]
    path = tmp_path / "bad.jsonl"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=message) as raised:
        make_plan(load_eval("gsm8k"), Wishes(num_shots=0), "scripted", path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


async def test_bad_data_ends_in_one_clear_line(tmp_path, data) -> None:
    data.write_bytes(data.read_bytes()[:-30])
    async with OpenAiServer(lambda _: Turn("1")) as server:
        code, out, err = await dsabench("gsm8k", "--base-url", server.url, "--data", str(data), "--json", home=tmp_path)
    assert (code, out) == (2, "")
    assert err == f"error: {data}:360: the file ends in the middle of a question (truncated?)\n"
    assert server.asked == []


async def test_a_changed_file_in_the_cache_is_refused(tmp_path) -> None:
    cached = tmp_path / "cache" / "dsabench" / "evals" / "gsm8k_test.jsonl"
    cached.parent.mkdir(parents=True)
    cached.write_text('{"question": "1+1?", "answer": "2"}\n')
    async with OpenAiServer(lambda _: Turn("1")) as server:
        code, _, err = await dsabench("gsm8k", "--base-url", server.url, home=tmp_path)
    assert code == 2
    assert "sha256" in err
    assert "--data FILE" in err


async def test_nothing_there_is_one_line_with_the_fix(tmp_path, data) -> None:
    code, out, err = await dsabench("gsm8k", "--base-url", "http://127.0.0.1:9", "--data", str(data), home=tmp_path)
    assert (code, out) == (2, "")
    assert (
        err == "error: no server answers at http://127.0.0.1:9 (cannot connect to 127.0.0.1:9: Connection refused): "
        "start one, or name another with --base-url\n"
    )


@pytest.mark.parametrize("url", ["http://me:pw@127.0.0.1:9", "ftp://127.0.0.1", "127.0.0.1:30000"])
def test_an_address_that_is_none_or_holds_a_password_is_refused(url) -> None:
    with pytest.raises(InputError, match="--base-url") as raised:
        normal_url(url)
    assert "pw" not in str(raised.value).replace("password", "")
    assert normal_url("http://h:1/v1/") == "http://h:1"


@pytest.mark.slow
async def test_hurried_interrupts_end_it_and_lose_nothing(tmp_path, data) -> None:
    async with OpenAiServer(script_of(data, delay_s=0.05)) as server:
        words = ("gsm8k", "--base-url", server.url, "--data", str(data), "--num-shots", "1", "--num-examples", "120")
        child = await start(*words, "--parallel", "4", "--no-html", home=tmp_path)
        while len(server.prompts) < 20:
            await asyncio.sleep(0.01)
        for _ in range(3):
            with suppress(ProcessLookupError):  # two may be enough
                child.send_signal(signal.SIGINT)
            await asyncio.sleep(0.003)
        _, err = await asyncio.wait_for(child.communicate(), 60.0)
    assert child.returncode == 130
    assert b"The same command goes on." in err
    assert b"Traceback" not in err
    (partial,) = (tmp_path / "results").rglob("*.partial.jsonl")
    assert len(partial.read_bytes().splitlines()) >= 10


def graders(pid: int) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(pid).children():
        with suppress(psutil.Error):  # one that has ended
            if "spawn_main" in " ".join(process.cmdline()):
                found.append(process)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
async def test_a_grader_ends_with_the_run_that_it_grades_for_and_never_by_itself(tmp_path, number) -> None:
    (tmp_path / "slow.yaml").write_text(SHORT_EVAL.replace("scorer: code", "scorer: nemo-math"))
    async with OpenAiServer(lambda _: Turn("391", delay_s=0.3)) as server:
        child = await start("./slow.yaml", "--base-url", server.url, home=tmp_path)
        while not (others := graders(child.pid)):
            assert child.returncode is None
            await asyncio.sleep(0.01)
        if number != signal.SIGKILL:  # a terminal and `timeout` send it to all of them
            for process in others:
                process.send_signal(number)
            await asyncio.sleep(0.2)
        child.send_signal(number)
        await child.wait()
        ended, left = await asyncio.to_thread(psutil.wait_procs, others, 10)
        left = [one for one in left if one.status() != psutil.STATUS_ZOMBIE]
        for one in left:
            one.kill()
        _, err = await child.communicate()
    assert left == [], ended
    # One that was about to get its first words when its parent was killed says so in its own way.
    assert number == signal.SIGKILL or b"Traceback" not in err
    assert child.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130)


async def test_a_grader_that_is_killed_ends_the_run_in_one_line(tmp_path) -> None:
    (tmp_path / "slow.yaml").write_text(SHORT_EVAL.replace("scorer: code", "scorer: nemo-math"))
    async with OpenAiServer(lambda _: Turn("391", delay_s=0.3)) as server:
        child = await start("./slow.yaml", "--base-url", server.url, home=tmp_path)
        while not (found := graders(child.pid)):
            assert child.returncode is None
            await asyncio.sleep(0.01)
        found[0].kill()
        _, err = await child.communicate()
    assert child.returncode == 3
    lines = err.decode().splitlines()
    assert [line for line in lines if line.startswith("error")] == [
        "error: load: internal: the process that grades answers was killed; finished samples are kept: the same command goes on"
    ]
    assert "Traceback" not in err.decode()


async def test_the_demo_works_offline_at_once(tmp_path) -> None:
    """No data file and no network: whoever wants to see an eval needs a server alone."""
    right = {question.prompt: question.expected for question in make_demo(load_eval("demo"), None)}
    async with OpenAiServer(lambda prompt: Turn(f"It is easy.\nAnswer: {right.get(prompt, 'A')}")) as server:
        code, out, err = await dsabench("demo", "--base-url", server.url, "--json", home=tmp_path)
    assert code == 0, err
    said = json.loads(out)
    assert (said["score"], said["n"], said["n_invalid"]) == (1.0, 240, 0)
