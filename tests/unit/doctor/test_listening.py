"""An answer is heard no longer than its verdict takes, over real sockets and from servers that go wrong in its middle."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import get_args

import pytest

from closed_port import nobody_listens
from dsabench.doctor.ask import ServerProbe
from dsabench.doctor.chat_stream import ChatStream
from dsabench.doctor.server import check_thinking, check_tools
from dsabench.machine.checks import Finding
from unit.doctor.servers import Character, Mishap, http, raw, serving
from unit.reference.server.serving import Server

LONG = 2000
"""Repeats of what is said: more than anybody waits for."""
SOON = 200
"""Events, of several thousand: a busy machine may send some more than are needed."""
SLOW_S = 0.01


async def thinking(character: Character, *, limit_s: float = 20.0, timeout_s: float = 20.0) -> Finding:
    async with serving(character.application()) as url:
        return await check_thinking(ServerProbe(url, timeout_s, limit_s), "model", None)


async def tools(character: Character, *, limit_s: float = 20.0, timeout_s: float = 20.0) -> Finding:
    async with serving(character.application()) as url:
        return await check_tools(ServerProbe(url, timeout_s, limit_s), "model", None)


# decided early


async def test_a_few_pieces_of_thinking_are_enough() -> None:
    character = Character(repeats=LONG, pause_s=SLOW_S)
    found = await thinking(character)
    assert found.verdict == "ok"
    assert found.line == "arrives in reasoning_content (36 characters heard)"
    assert character.sent[0] < SOON


async def test_blank_thinking_is_none() -> None:
    assert (await thinking(Character(thought="\n\n"))).verdict == "warning"


async def test_short_thinking_is_heard_to_the_end() -> None:
    """Its answer may still hold the mark."""
    assert (await thinking(Character(thought="Hm."))).verdict == "ok"
    assert (await thinking(Character(thought="Hm.", content="</think> 391"))).verdict == "problem"


@pytest.mark.parametrize("mark", ["<think>", "</think>"])
async def test_a_mark_in_content_decides_also_when_it_comes_in_pieces(mark) -> None:
    character = Character(thought=None, content=f"17 times {mark}", repeats=LONG, pause_s=SLOW_S)
    found = await thinking(character)
    assert (found.verdict, "stands in content" in found.line) == ("problem", True)
    assert character.sent[0] < SOON


async def test_content_without_a_mark_is_not_decided_before_its_end() -> None:
    """Where the template opens the thinking, only its end would tell, and that comes late."""
    found = await thinking(Character(thought=None, content="391 " * 200 + "</think>"))
    assert "stands in content" in found.line


async def test_a_call_is_put_together_and_the_answer_heard_as_far_as_the_result() -> None:
    character = Character(result_answer="It is 41.5 degrees. ", repeats=LONG, pause_s=SLOW_S)
    found = await tools(character)
    assert found.verdict == "ok"
    assert character.sent[1] < SOON


# the limit: what has come within a second or two hangs on the machine


@pytest.mark.timing
async def test_undecided_thinking_says_what_came() -> None:
    found = await thinking(Character(thought=None, content="words ", repeats=LONG, pause_s=SLOW_S), limit_s=1.0)
    assert found.verdict == "warning"
    assert found.line.startswith("undecided after 1 s: 0 characters of thinking, ")
    assert "--reasoning-parser" in (found.fix or "")


@pytest.mark.timing
async def test_undecided_tools_say_what_came() -> None:
    talk = Character(call=None, call_content="words ", repeats=LONG, pause_s=SLOW_S)
    found = await tools(talk, limit_s=1.0)
    assert (found.verdict, found.line[:19]) == ("warning", "undecided after 1 s")
    half = Character(mishap="stand still")
    found = await tools(half, limit_s=1.0)
    assert found.verdict == "warning"
    assert "a call of read_thermometer, the last after 0." in found.line


@pytest.mark.timing
async def test_a_call_in_content_is_told_at_the_limit_too() -> None:
    found = await tools(Character(call=None, call_content="<tool_call>", repeats=LONG, pause_s=SLOW_S), limit_s=1.0)
    assert (found.verdict, "stands in content" in found.line) == ("problem", True)


@pytest.mark.timing
async def test_a_result_that_is_not_mentioned_in_time() -> None:
    found = await tools(Character(result_answer="Warm. ", repeats=LONG, pause_s=SLOW_S), limit_s=1.5)
    assert found.verdict == "warning"
    assert "does not mention the result that it was given within 1.5 s" in found.line


# mishaps

SAID: dict[Mishap, str] = {
    "error": "the server says in its answer: KV cache pool is full",
    "garbage": "not a JSON object: {not json",
    "cut": "the answer broke off: ",
    "end": "the answer broke off: ",
    "stand still": "nothing more for 5 s after ",
}


def test_every_mishap_is_looked_at() -> None:
    assert set(SAID) == set(get_args(Mishap))


@pytest.mark.parametrize("mishap", SAID)
@pytest.mark.parametrize("look", [thinking, tools])
async def test_what_goes_wrong_in_the_middle_is_one_clear_problem(look, mishap) -> None:
    found = await look(Character(mishap=mishap), timeout_s=5.0)
    assert found.verdict == "problem"
    assert SAID[mishap] in found.line
    assert found.line.startswith("/v1/chat/completions: ")
    assert found.fix is None  # no parser mends that


async def test_an_answer_that_breaks_off_after_a_result() -> None:
    class SecondBreaks(Character):
        def _message(self, body):
            self.mishap = "cut" if body["messages"][-1]["role"] == "tool" else None
            return super()._message(body)

    found = await tools(SecondBreaks(result_answer="Let me look at what the thermometer says."))
    assert found.verdict == "problem"
    assert found.line.startswith("a call comes out; after its result: /v1/chat/completions: the answer broke off")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "Server disconnected"),
        (b"nonsense\r\n\r\n", "Expected HTTP/"),
        (http(b""), "not a JSON object"),
        (http(b"data: {}\n\n"), "not a JSON object: data: {}"),
        (http(b"no", "503 Service Unavailable"), "HTTP 503: no"),
        (http(b"data: [1]\n\n", kind="text/event-stream"), "not a JSON object: [1]"),
        (http(b": alive\n\n", kind="text/event-stream"), "the answer broke off: 0 characters of thinking, 0 of answer"),
        (http(b'data: {"choices"', kind="text/event-stream"), "the answer broke off"),
        (http(b'data: {"choices": [{"finish_reason": "abort"}]}\n\n', kind="text/event-stream"), "gave the request up"),
    ],
)
async def test_no_answer_at_all(answer, said) -> None:
    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async with raw(say) as url:
        found = await check_thinking(ServerProbe(url, 2.0), "model", None)
    assert found.verdict == "problem"
    assert said in found.line


async def test_silence_is_a_problem_and_ends_in_time() -> None:
    async def silence(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async with raw(silence) as url:
        async with asyncio.timeout(60):
            found = await check_thinking(ServerProbe(url, question_timeout_s=0.3), "model", None)
    assert found.verdict == "problem"
    assert found.line.startswith("/v1/chat/completions: no answer within 0.")


async def test_an_endless_line_is_given_up() -> None:
    async def pour(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ")
        for _ in range(4000):
            writer.write(b" " * 65536)
            await writer.drain()

    async with raw(pour) as url:
        found = await check_thinking(ServerProbe(url, 20.0), "model", None)
    assert "more than 8 MiB" in found.line


async def test_nobody_listens() -> None:
    with nobody_listens() as url:
        found = await check_tools(ServerProbe(url), "model", None)
    assert "Connection refused" in found.line
    assert found.fix is None


# a real server's stream


async def test_a_request_that_is_heard_no_further_ends_on_the_server(server: Server) -> None:
    def enough(heard: ChatStream) -> bool:
        return len(heard.said) >= 8

    body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 400, "ignore_eos": True}
    before = _aborted(server.url)
    heard = await ServerProbe(server.url).listen("/v1/chat/completions", body, enough)
    assert (heard.error, heard.ended, len(heard.said) >= 8) == ("", False, True)
    async with asyncio.timeout(60):
        while _aborted(server.url) == before:
            await asyncio.sleep(0.02)
    short = await ServerProbe(server.url).listen("/v1/chat/completions", body | {"max_tokens": 3}, lambda _: False)
    assert (short.error, short.ended, short.finish_reason) == ("", True, "length")


def _aborted(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("sglang:num_aborted_requests"))


async def test_what_the_server_says_of_a_wrong_request(server: Server) -> None:
    found = await ServerProbe(server.url).listen("/v1/chat/completions", {"messages": []}, lambda _: False)
    assert found.refused
    assert found.error.startswith("/v1/chat/completions: HTTP 400: ")
    assert json.loads(found.error.partition("400: ")[2])["object"] == "error"
