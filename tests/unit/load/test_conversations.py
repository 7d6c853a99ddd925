"""Chats whose later turns repeat the server's own answers: drawn, and sent to a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsabench.cli.bench_choices import selection_for
from dsabench.cli.bench_flags import parse_flags
from dsabench.errors import InputError
from dsabench.load.draw.as_bench_serving import SeededGenerators, draw_dataset
from dsabench.load.draw.prompts import draw_prompts, draw_rehearsal
from dsabench.load.draw.tokenizers import ByteTokenizer
from dsabench.load.load_test import run_load_test
from dsabench.load.read.chat_history import ChatHistory
from dsabench.load.read.openai import said_in_chat
from dsabench.load.requests import LoadTarget
from dsabench.model.sample import Prompt
from dsabench.model.workload import SharedPrefixSpec, Workload
from openai_server import OpenAiServer, Turn

CHAT = ["--backend", "sglang-oai-chat"]


def turn(*texts: str, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": text} for text in texts], **more}


def trace(path: Path, *conversations: object) -> str:
    path.write_text(json.dumps({"conversations": list(conversations)}))
    return str(path)


def drawn(path: str, *words: str) -> list[Prompt]:
    args = parse_flags(["--dataset-name", "agentic-trace", "--dataset-path", path, "--num-prompts", "9", *CHAT, *words])
    return draw_dataset(selection_for(args), ByteTokenizer(), SeededGenerators.of(1)).prompts


def test_an_agentic_trace_has_turns_with_pauses(tmp_path: Path) -> None:
    path = trace(
        tmp_path / "a.json",
        [turn("Fix the bug."), turn("exit 1", role="tool", delay=1500), {"messages": []}, turn("Go on.")],
        [turn("Hello")],
    )
    first, tool, last, other = drawn(path, "--sharegpt-output-len", "10")
    assert [one.session for one in (first, tool, last, other)] == ["0", "0", "0", "1"]
    assert [one.continues for one in (first, tool, last, other)] == [False, True, True, False]
    assert [one.pause_s for one in (first, tool, last)] == [0.0, 1.5, 0.0]
    assert tool.messages == ({"role": "tool", "content": "exit 1"},)
    assert first.input_len == len("<|user|>Fix the bug.\n<|assistant|>")
    assert tool.input_len == first.input_len + 10 + len("<|tool|>exit 1\n<|assistant|>")
    assert [one.session for one in drawn(path, "--dataset-offset", "1", "--agentic-max-turns", "1")] == ["1", "0"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "FILE: an agentic trace is an object with a list of conversations"),
        ('{"conversations": []}', "FILE: an agentic trace is an object with a list of conversations"),
        ('{"conversations": [{}]}', "FILE: conversations[0]: is a list of turns"),
        ('{"conversations": [[], ["x"]]}', "FILE: conversations[1][0]: a turn is an object with a list of messages"),
        ('{"conversations": [[{"messages": [{"role": "user"}]}]]}', 'has role and content, not {"role": "user"}'),
        (
            '{"conversations": [[{"messages": [{"role": "u", "content": ""}], "delay": -1}]]}',
            "delay: is a number of ms",
        ),
        ('{"conversations": [[]]}', "FILE: no conversation with messages"),
        ("{", "FILE: not JSON: "),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused_by_its_place(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError) as caught:
        drawn(str(tmp_path / "a.json"))
    assert message in str(caught.value).replace(str(tmp_path / "a.json"), "FILE")


def test_chats_go_to_chat_backends_only() -> None:
    for words in (["--gsp-num-turns", "2"], ["--dataset-name", "agentic-trace"]):
        with pytest.raises(InputError, match="chats go to a chat backend"):
            parse_flags(words)


def said(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["role"], one["content"]) for one in body["messages"]]


@pytest.mark.parametrize(
    ("second", "heard"),
    [
        (Turn("two!", reasoning="Hm. "), "Hm. two!"),
        (Turn("Two and three.", reasoning="Hm. ", breaks=True), "Hm. "),
        (Turn(status=500), ""),
    ],
    ids=["whole", "cut", "refused"],
)
async def test_later_turns_repeat_what_the_server_answered(tmp_path: Path, second: Turn, heard: str) -> None:
    """The bodies that arrive. Of a turn that failed what came is repeated, and its conversation goes on."""
    path = trace(tmp_path / "a.json", [turn("one"), turn("tool says", "two"), turn("six")], *[[turn("ten")]] * 12)
    load = Workload(
        name="w", dataset="agentic-trace", dataset_path=path, num_prompts=13, endpoint="chat", max_concurrency=2
    )
    answers = {"two": second}
    async with OpenAiServer(lambda prompt: answers.get(prompt, Turn(f"to {prompt}: {'é' * 300}"))) as server:
        target = LoadTarget(server.url, "m", tokenizer="bytes", endpoint="chat")
        run = await run_load_test(target, load, on_progress=lambda *_: None)
        asked = [said(body) for body in server.asked]
    first = ("assistant", "to one: " + "é" * 300)
    asks = [("user", "tool says"), ("user", "two")]
    assert [one for one in asked if one[0] == ("user", "one")] == [
        [("user", "one")],
        [("user", "one"), first, *asks],
        [("user", "one"), first, *asks, ("assistant", heard), ("user", "six")],
    ]
    assert len(asked) == 15
    assert [sample.error is None for sample in run.samples[:3]] == [True, bool(heard) and not second.breaks, True]
    assert run.samples[2].input_len == 7  # as the server counted it: nobody else knows


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
LINES = st.sampled_from(
    [
        b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n',
        b'data: {"choices": [{"delta": {"content": "\\ud800"}}]}\n\n',
        b'data: {"choices": [{"delta": {"content": 7}}, null]}\n\n',
        b'data: {"choices": {}}\n\n',
        b"data: [DONE]\n\n",
        b"data: {\n\n",
    ]
)


@given(st.lists(LINES | st.binary(max_size=40), max_size=6), st.booleans())
def test_whatever_was_answered_the_next_turn_can_be_sent(pieces: list[bytes], with_head: bool) -> None:
    prompts = [Prompt(1, 1, messages=({"role": "user", "content": text},), continues=text == "b") for text in "ab"]
    answer = (HEAD if with_head else b"") + b"".join(pieces)
    body = ChatHistory(LoadTarget("http://h:1", "m", endpoint="chat").options, prompts)(0, 1, answer)
    assert [one["role"] for one in json.loads(body)["messages"]] == ["user", "assistant", "user"]


def test_tool_calls_are_no_part_of_what_was_said() -> None:
    delta = {"content": "I look. ", "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}
    events = [
        {"choices": [{"delta": one}]} for one in (delta, {"reasoning": "So"}, {"content": None}, {"content": "."})
    ]
    answer = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
    assert said_in_chat([(0.0, answer)]) == "I look. So."


def test_groups_chats_and_rehearsals_are_counted_in_chats() -> None:
    shape = SharedPrefixSpec(groups=2, prompts_per_group=3, system_prompt_len=9, question_len=4, output_len=5, turns=3)
    load = Workload(
        name="w",
        dataset="generated-shared-prefix",
        shared_prefix=shape,
        num_prompts=6,
        endpoint="chat",
        request_rate=2.0,
    )
    target = LoadTarget("http://h:1", "m", tokenizer="bytes", endpoint="chat")
    found = draw_prompts(target, load)
    assert [one.continues for one in found.measured] == [False, True, True] * 6
    assert found.due_s[::3].tolist() == found.due_s[2::3].tolist()
    assert len(set(found.due_s.tolist())) == 6
    [warm_up] = found.warm_up
    assert (warm_up.session, warm_up.continues) == (None, False)
    assert len(draw_rehearsal(target, load, 2, 0)) == 6
