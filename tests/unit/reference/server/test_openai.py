"""OpenAI's endpoints of a real server on a real socket."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'harness'}{os.pathsep}{ROOT / 'kernels'}"}
    argv = [
        sys.executable,
        "-m",
        "dsabench.reference.launch_server",
        "--model",
        "tiny",
        "--port",
        "0",
        "--cpu-threads",
        "1",
    ]
    with subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = ""
        for line in process.stderr:
            if found := re.search(r"Listening on (http://\S+)", line):
                address = found[1]
            if "ready to roll" in line:
                break
        yield address
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def post(url: str, path: str, body: object) -> tuple[int, Any]:
    request = urllib.request.Request(url + path, data=json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def stream(url: str, path: str, body: dict[str, Any]) -> list[Any]:
    request = urllib.request.Request(url + path, data=json.dumps({**body, "stream": True}).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        events = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
    assert events.pop() == b"[DONE]"
    return [json.loads(event) for event in events]


GREEDY = {"model": "tiny", "temperature": 0, "ignore_eos": True}
CHAT = {**GREEDY, "messages": [{"role": "user", "content": "Say é"}], "max_completion_tokens": 12}
COMPLETION = {**GREEDY, "prompt": "Say é", "max_tokens": 12}


def test_a_completion_is_the_one_of_generate(url: str) -> None:
    status, answer = post(url, "/v1/completions", COMPLETION)
    _, native = post(
        url,
        "/generate",
        {"text": "Say é", "sampling_params": {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True}},
    )
    [choice] = answer["choices"]
    assert status == 200
    assert (answer["object"], answer["model"], answer["id"][:5]) == ("text_completion", "tiny", "cmpl-")
    assert choice["text"] == native["text"]
    assert (choice["finish_reason"], choice["matched_stop"], choice["index"]) == ("length", None, 0)
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (6, 12, 18)


def test_ids_and_several_prompts(url: str) -> None:
    ids = list("Say é".encode())
    assert (
        post(url, "/v1/completions", {**COMPLETION, "prompt": ids})[1]["choices"][0]["text"]
        == (post(url, "/v1/completions", COMPLETION)[1]["choices"][0]["text"])
    )
    _, both = post(url, "/v1/completions", {**COMPLETION, "prompt": [ids, ids[:3]]})
    assert [choice["index"] for choice in both["choices"]] == [0, 1]
    assert both["usage"]["prompt_tokens"] == 9


@pytest.mark.parametrize(
    "options", [None, {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}]
)
def test_a_streamed_completion_adds_up(url: str, options: dict[str, bool] | None) -> None:
    whole = post(url, "/v1/completions", COMPLETION)[1]
    events = stream(url, "/v1/completions", {**COMPLETION, "stream_options": options})
    chunks = [event for event in events if event["choices"]]
    assert "".join(event["choices"][0]["text"] for event in chunks) == whole["choices"][0]["text"]
    assert [event["choices"][0]["finish_reason"] for event in chunks] == [None] * (len(chunks) - 1) + ["length"]
    tail = events[len(chunks) :]
    assert len(tail) == (1 if options else 0)
    if options:
        assert tail[0]["usage"]["completion_tokens"] == 12
    counts = [event["usage"] and event["usage"]["completion_tokens"] for event in chunks]
    if options and "continuous_usage_stats" in options:
        assert counts == sorted(counts)
        assert counts[-1] == 12
    else:
        assert set(counts) == {None}


def test_a_chat_follows_the_template(url: str) -> None:
    _, answer = post(url, "/v1/chat/completions", CHAT)
    prompt = "<|user|>Say é\n<|assistant|>"
    _, plain = post(url, "/v1/completions", {**COMPLETION, "prompt": prompt})
    message = answer["choices"][0]["message"]
    assert (answer["object"], message["role"]) == ("chat.completion", "assistant")
    assert message["content"] == plain["choices"][0]["text"]
    assert answer["usage"]["prompt_tokens"] == len(prompt.encode())


def test_a_streamed_chat_begins_with_the_role_and_ends_with_the_reason(url: str) -> None:
    whole = post(url, "/v1/chat/completions", CHAT)[1]["choices"][0]["message"]["content"]
    events = stream(url, "/v1/chat/completions", {**CHAT, "stream_options": {"include_usage": True}})
    *chunks, usage = events
    first, last = chunks[0]["choices"][0], chunks[-1]["choices"][0]
    assert first["delta"] == {"role": "assistant", "content": "", "reasoning_content": None}
    assert (last["finish_reason"], "content" in last["delta"]) == ("length", False)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == whole
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 12)


def test_parts_of_a_message_and_tools_reach_the_model(url: str) -> None:
    parts = [{"type": "text", "text": "Say "}, {"type": "text", "text": "é"}]
    _, split = post(url, "/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": parts}]})
    _, tools = post(url, "/v1/chat/completions", {**CHAT, "tools": [{"type": "function"}]})
    _, plain = post(url, "/v1/chat/completions", CHAT)
    assert split["choices"][0]["message"] == plain["choices"][0]["message"]
    assert tools["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"]


def test_a_stop_string_is_said(url: str) -> None:
    text = post(url, "/v1/completions", COMPLETION)[1]["choices"][0]["text"]
    stop = next(c for c in text[1:] if c not in text[:1])
    _, stopped = post(url, "/v1/completions", {**COMPLETION, "stop": stop})
    assert (stopped["choices"][0]["finish_reason"], stopped["choices"][0]["matched_stop"]) == ("stop", stop)
    assert stop not in stopped["choices"][0]["text"]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/completions", {"max_tokens": 4}, "prompt: Field required"),
        ("/v1/completions", {"prompt": ""}, "Prompt cannot be empty"),
        ("/v1/completions", {"prompt": []}, "Prompt cannot be empty"),
        ("/v1/completions", {"prompt": "a", "n": 2}, "n: Input should be 1"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 10**7}, "exceeds the model's maximum context length"),
        ("/v1/chat/completions", {"messages": []}, "messages: List should have at least 1 item"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "a"}], "top_p": 0},
            "top_p: Input should be greater",
        ),
        ("/v1/chat/completions", {"messages": "hi"}, "messages: Input should be a valid array"),
    ],
)
def test_what_is_wrong_is_said_in_openais_shape(url: str, path: str, body: dict[str, Any], message: str) -> None:
    status, answer = post(url, path, body)
    assert status == 400
    assert message in answer.pop("message")
    assert answer == {"object": "error", "type": "BadRequestError", "param": None, "code": 400}
