"""The retrieval eval against servers of different contexts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsabench.config.load import load_eval
from dsabench.evals.plan import Wishes, make_plan
from dsabench.results.journal import read_journal
from eval_process import dsabench
from openai_server import OpenAiServer, Turn


def server_of(context: int | None) -> OpenAiServer:
    """A token is five characters; every question is answered rightly."""
    plan = make_plan(load_eval("needle"), Wishes(words=(1500, 6000, 24000)), "scripted", None)
    right = {question.prompt: question.expected for question in plan.questions}
    return OpenAiServer(
        lambda prompt: Turn(right.get(prompt, "?")), context=context, count_tokens=lambda prompt: len(prompt) // 5
    )


@pytest.mark.parametrize(("context", "words"), [(12_000, [1500, 6000]), (2500, [1500]), (None, [1500, 6000, 24000])])
async def test_lengths_that_do_not_fit_are_left_out_and_said_so(tmp_path, context, words) -> None:
    async with server_of(context) as server:
        code, out, err = await dsabench("needle", "--base-url", server.url, "--json", "--no-html", home=tmp_path)
    assert code == 0, err
    said = json.loads(out)
    assert (said["score"], said["words"], said["n"]) == (1.0, words, 20 * len(words))
    (record,) = read_journal(tmp_path / "results" / "local-evals" / "journal.jsonl").records
    assert list(record.trial.workload.words) == words
    notes = [line for line in said["warnings"] if "left out" in line]
    gone = ", ".join(str(length) for length in (1500, 6000, 24000) if length not in words)
    assert notes == ([f"lengths of {gone} words left out: the server has room for {context} tokens"] if gone else [])
    assert all(note in err for note in notes)
    # The text that tells the length of a token is none of the questions.
    asked = {json.loads(line)["prompt"] for line in Path(said["samples"]).read_text().splitlines()}
    assert len(server.asked) == len(asked) + (1 if context is None else 2)


async def test_where_nothing_fits_one_line_says_what_would(tmp_path) -> None:
    async with server_of(900) as server:
        code, out, err = await dsabench("needle", "--base-url", server.url, "--json", home=tmp_path)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(
            "error: needle: no length fits: the server has room for 900 tokens, and 1500 words and the answer"
        )
        assert "--words 375 fits" in err
        words = ("needle", "--base-url", server.url, "--words", "375", "--json", "--no-html")
        code, out, err = await dsabench(*words, home=tmp_path)
    assert code == 0, err
    assert json.loads(out)["words"] == [375]


def test_the_record_names_the_lengths_that_are_asked() -> None:
    plan = make_plan(load_eval("needle"), Wishes(num_examples=21), "scripted", None)
    assert plan.task.words == (1500, 6000)
    assert plan.of_lengths((1500,)).task == make_plan(load_eval("needle"), Wishes(words=(1500,)), "scripted", None).task


async def test_lengths_are_asked_of_needle_only(tmp_path) -> None:
    code, _, err = await dsabench("gsm8k", "--base-url", "http://127.0.0.1:9", "--words", "9", home=tmp_path)
    assert (code, err) == (2, "error: gsm8k: --words: only needle has lengths\n")
