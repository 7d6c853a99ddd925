"""A running server is tried out over a real socket, well or badly behaved."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from closed_port import nobody_listens
from dsabench import __version__
from dsabench.doctor.run import DoctorOptions, run_checks
from dsabench.errors import InputError
from dsabench.machine.checks import Finding
from unit.doctor.servers import CALL, Character, as_json, http, raw, serving
from unit.reference.server.serving import Server


async def look(character: Character, **options) -> dict[str, Finding]:
    async with serving(character.application()) as url:
        return {found.check: found for found in await run_checks(DoctorOptions(base_url=url, **options))}


async def test_a_server_that_is_started_right_has_nothing_wrong() -> None:
    found = await look(Character())
    assert {name: one.verdict for name, one in found.items() if name != "open files"} == {
        "server": "ok",
        "chat template": "ok",
        "openai client": "ok",
        "speculative decoding": "ok",
        "thinking": "ok",
        "tool calls": "ok",
    }
    assert found["server"].line == "sglang 0.5.16 serves deepseek-ai/DeepSeek-V3.2"
    assert "2.40 tokens a step" in found["speculative decoding"].line
    assert all(one.fix is None for name, one in found.items() if name != "open files")


async def test_the_reference_runtime_is_not_called_sglang(server: Server) -> None:
    found = {one.check: one for one in await run_checks(DoctorOptions(base_url=server.url))}
    assert found["server"].line == f"dsabench's reference runtime {__version__} serves tiny"


async def test_the_round_trip_gives_the_servers_own_call_back() -> None:
    character = Character()
    await look(character)
    last = character.seen[-1]["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "tool"]
    assert last[1]["tool_calls"] == [CALL]
    assert last[2]["tool_call_id"] == "call_1"


async def test_thinking_is_asked_for_in_both_families_words() -> None:
    character = Character()
    await look(character)
    asked = [body["chat_template_kwargs"] for body in character.seen if "chat_template_kwargs" in body]
    assert asked == [{"thinking": True, "enable_thinking": True}] * 3, "also where a tool is offered"


@pytest.mark.parametrize(
    ("character", "check", "verdict", "line", "fix"),
    [
        (
            Character(thought=None, content="17 × 20 … </think> 391"),
            "thinking",
            "problem",
            "it stands in content",
            "--reasoning-parser deepseek-v3",
        ),
        (
            Character(thought=None, content="<think>…", model="zai-org/GLM-5-FP8"),
            "thinking",
            "problem",
            "it stands in content",
            "--reasoning-parser glm45",
        ),
        (Character(thought=None), "thinking", "warning", "does not know `thinking`", "--chat-template"),
        (Character(thought=None, finish="length"), "thinking", "warning", "cut at 2048 tokens", "--reasoning-parser"),
        (
            Character(call=None, call_content="<｜tool▁calls▁begin｜>read_thermometer"),
            "tool calls",
            "problem",
            "stands in content",
            "--tool-call-parser deepseekv32",
        ),
        (
            Character(call=None, call_content="<tool_call>…", model="zai-org/GLM-5-FP8"),
            "tool calls",
            "problem",
            "stands in content",
            "--tool-call-parser glm47",
        ),
        (
            Character(call=None, call_content="It is warm."),
            "tool calls",
            "warning",
            "called no tool",
            "--tool-call-parser",
        ),
        (
            Character(call={"id": "1", "function": {"name": "read_thermometer", "arguments": "{room: attic"}}),
            "tool calls",
            "problem",
            "no JSON",
            "--tool-call-parser",
        ),
        (
            Character(call={"id": "1", "function": {"name": "other", "arguments": "{}"}}),
            "tool calls",
            "problem",
            "names other",
            "--tool-call-parser",
        ),
        (
            Character(call={"id": "1", "function": {"name": "read_thermometer", "arguments": "{}"}}),
            "tool calls",
            "problem",
            "lacks the argument",
            "--tool-call-parser",
        ),
        (Character(call="a string"), "tool calls", "problem", "names no tool", "--tool-call-parser"),
        (Character(refuse_result=True), "tool calls", "problem", "the result of a call is refused", "--tool-call"),
        (Character(result_answer="Warm."), "tool calls", "warning", "does not mention the result", "--chat-template"),
        (
            Character(result_answer="", result_thought="The tool says 41.5 degrees. It is 41.5 degrees."),
            "tool calls",
            "problem",
            "the whole answer stands in reasoning_content",
            '{"thinking": false}',
        ),
        (
            Character(result_answer="Warm.", result_thought="The tool says 41.5 degrees."),
            "tool calls",
            "warning",
            "does not mention the result",
            "--chat-template",
        ),
        (Character(role_tokens=0), "chat template", "problem", "roles are not marked", "--chat-template"),
        (
            Character(no_chat="Cannot use chat template functions because tokenizer.chat_template is not set"),
            "chat template",
            "problem",
            "tokenizer.chat_template is not set",
            "--chat-template",
        ),
        (
            Character(speculative=None),
            "speculative decoding",
            "warning",
            "off",
            "--speculative-algorithm EAGLE --speculative-num-steps 3",
        ),
        (Character(accepted=1.0), "speculative decoding", "warning", "no draft is ever accepted", "draft"),
        (Character(accepted=None), "speculative decoding", "warning", "does not say what was accepted", None),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 24 else "",
)
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "one piece"])
async def test_what_is_wrong_is_named_with_what_mends_it(character, check, verdict, line, fix, *, streams) -> None:
    found = (await look(replace(character, streams=streams)))[check]
    assert found.verdict == verdict
    assert line in found.line
    assert (found.fix is None) if fix is None else (fix in (found.fix or ""))


async def test_a_model_without_tool_calls_is_not_asked_for_one() -> None:
    character = Character(model="deepseek-ai/DeepSeek-V3.2-Speciale")
    found = await look(character)
    assert found["tool calls"].verdict == "ok"
    assert not any("tools" in body for body in character.seen)


async def test_the_old_name_of_server_info_is_known() -> None:
    assert (await look(Character(old_name_of_info=True)))["server"].verdict == "ok"


async def test_a_key_is_asked_for_and_used_and_never_shown(monkeypatch) -> None:
    found = await look(Character(api_key="s3cret-key"))
    assert found["server"].verdict == "problem"
    assert "API key" in found["server"].line
    assert "--api-key-env" in (found["server"].fix or "")
    monkeypatch.setenv("KEY_OF_TEST", "s3cret-key")
    with_key = await look(Character(api_key="s3cret-key"), api_key_env="KEY_OF_TEST")
    assert with_key["server"].verdict == "ok"
    assert "s3cret" not in repr(with_key) + repr(found)


async def test_a_variable_without_a_key_is_the_users_mistake(monkeypatch) -> None:
    monkeypatch.delenv("KEY_OF_TEST", raising=False)
    with pytest.raises(InputError, match="KEY_OF_TEST: the variable is not set"):
        await run_checks(DoctorOptions(base_url="http://127.0.0.1:9", api_key_env="KEY_OF_TEST"))


@pytest.mark.parametrize("url", ["localhost:30000", "ftp://host", "http://", "http://user:word@host:1"])
async def test_a_url_that_is_none_is_the_users_mistake(url) -> None:
    with pytest.raises(InputError, match="--base-url"):
        await run_checks(DoctorOptions(base_url=url))


async def _server_of(url: str, timeout_s: float = 2.0) -> Finding:
    return (await run_checks(DoctorOptions(base_url=url, timeout_s=timeout_s)))[-1]


async def test_nobody_listens() -> None:
    with nobody_listens() as url:
        found = await _server_of(url)
    assert (found.check, found.verdict) == ("server", "problem")
    assert found.fix == f"curl -i {url}/health"


async def test_a_server_that_never_answers_ends_in_time() -> None:
    async def silence(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async with raw(silence) as url:
        async with asyncio.timeout(60):
            found = await _server_of(url, 0.3)
    assert "no whole answer within 0.3 s" in found.line


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        http(b"[1, 2]"),
        http(b"{not json"),
        http(b"x" * 100, "500 Internal Server Error"),
        http(b"", "302 Found"),
    ],
    ids=["no HTTP", "a list", "no JSON", "an error", "a redirect"],
)
async def test_answers_that_are_none_are_problems(answer) -> None:
    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async with raw(say) as url:
        found = await _server_of(url)
    assert (found.check, found.verdict) == ("server", "problem")


async def test_an_endless_answer_is_given_up() -> None:
    async def pour(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(4000):
            writer.write(b" " * 65536)
            await writer.drain()

    async with raw(pour) as url:
        found = await _server_of(url, 20.0)
    assert "more than 8 MiB" in found.line


async def test_what_a_server_says_does_not_steer_the_terminal() -> None:
    hostile = Character(model="\x1b[2J\x1b]0;owned\x07model\nproblem everything", extra_info={"version": "\x9b31m1"})
    lines = [found.line for found in (await look(hostile)).values()]
    assert all(line.isprintable() for line in lines)
    assert any("model problem everything" in line for line in lines)


async def test_an_object_of_other_kinds_is_survived() -> None:
    """Every field of the wrong kind: warnings and problems, no fault of ours."""

    async def say(writer: asyncio.StreamWriter) -> None:
        weird = {"version": 7, "model_path": [], "speculative_algorithm": {}, "choices": [None], "usage": "many"}
        writer.write(as_json(weird))
        await writer.drain()

    async with raw(say) as url:
        found = await run_checks(DoctorOptions(base_url=url, timeout_s=2.0))
    assert {one.check: one.verdict for one in found if one.check != "open files"} == {
        "server": "ok",
        "chat template": "warning",
        "openai client": "problem",
        "speculative decoding": "warning",
        "thinking": "warning",
        "tool calls": "warning",
    }
