"""The official client against servers that stream well, badly or not at all, over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from closed_port import nobody_listens
from dsabench.doctor.ask import ServerProbe
from dsabench.doctor.openai_client import check_openai_client
from unit.doctor.servers import Character, http, raw, serving
from unit.reference.server.serving import Server

CHUNK = b'data: {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [%s]}\n\n'
SAID = CHUNK % b'{"index": 0, "delta": {"content": "1"}, "finish_reason": null}'
LAST = CHUNK % b'{"index": 0, "delta": {}, "finish_reason": "stop"}'
DONE = b"data: [DONE]\n\n"


async def test_the_reference_runtimes_stream_is_read_to_its_end(server: Server, monkeypatch) -> None:
    found = await check_openai_client(ServerProbe(server.url), "tiny")
    assert found.verdict == "ok", found.line
    assert found.line.endswith("ended by length, 16 tokens counted")


async def test_a_key_is_sent_and_what_the_environment_says_of_its_user_is_not(monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-mine")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(http(SAID + LAST + DONE, kind="text/event-stream"))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as listening:
        port = listening.sockets[0].getsockname()[1]
        found = await check_openai_client(ServerProbe(f"http://127.0.0.1:{port}", api_key="mine"), "model")
    assert "without the usage" in found.line
    head = heard[0].lower()
    assert b"authorization: bearer mine" in head
    assert b"org-mine" not in head
    assert b"project-mine" not in head


@pytest.mark.parametrize(
    ("answer", "verdict", "said"),
    [
        (
            http(SAID + LAST + DONE, kind="text/event-stream"),
            "warning",
            "reads 2 pieces of a streamed answer, ended by stop, without the usage",
        ),
        (
            http(SAID + DONE, kind="text/event-stream"),
            "problem",
            "reads 1 pieces of a streamed answer, and none says how it ended",
        ),
        (http(b"data: {not json\n\n", kind="text/event-stream"), "problem", "JSONDecodeError"),
        (
            http(b'data: {"error": {"message": "pool is full"}}\n\n', kind="text/event-stream"),
            "problem",
            "APIError: pool is full",
        ),
        (http(b"data: [1]\n\n", kind="text/event-stream"), "problem", "openai "),
        (http(b"no", "503 Service Unavailable"), "problem", "InternalServerError: no"),
        (b"", "problem", "APIConnectionError: Connection error."),
    ],
)
async def test_what_a_bad_answer_comes_to(answer, verdict, said) -> None:
    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async with raw(say) as url:
        found = await check_openai_client(ServerProbe(url, 5.0), "model")
    assert (found.verdict, said in found.line) == (verdict, True), found.line


async def test_silence_ends_in_time() -> None:
    async def silence(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async with raw(silence) as url, asyncio.timeout(60):
        found = await check_openai_client(ServerProbe(url, question_timeout_s=0.3), "model")
    assert found.line == "undecided after 0.3 s: 0 pieces of an answer were read"


async def test_nobody_listens() -> None:
    with nobody_listens() as url:
        found = await check_openai_client(ServerProbe(url), "model")
    assert found.verdict == "problem"


async def test_a_server_that_streams_as_sglang_does() -> None:
    async with serving(Character().application()) as url:
        found = await check_openai_client(ServerProbe(url), "model")
    assert found.verdict == "ok", found.line
