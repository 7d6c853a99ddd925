"""Servers on real sockets that answer as a well or badly started sglang would."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

Mishap = Literal["error", "garbage", "cut", "end", "stand still"]

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "read_thermometer", "arguments": '{"room": "attic"}'},
}


@dataclass
class Character:
    """How a server behaves; the defaults are those of one that is started right."""

    thought: str | None = "17 times 20 is 340 …"
    content: str = "391"
    call: Any = field(default_factory=lambda: CALL)
    call_content: str = ""
    result_answer: str = "It is 41.5 degrees."
    result_thought: str | None = None
    refuse_result: bool = False
    finish: str = "stop"
    role_tokens: int = 4
    speculative: str | None = "EAGLE"
    accepted: float | None = 2.4
    model: str = "deepseek-ai/DeepSeek-V3.2"
    extra_info: dict[str, Any] = field(default_factory=dict)
    api_key: str | None = None
    no_chat: str | None = None
    """Error text of the chat endpoint."""
    old_name_of_info: bool = False
    streams: bool = True
    """False: answers in one piece also when asked for a stream."""
    pause_s: float = 0.0
    """Before each event of a stream."""
    repeats: int = 1
    """How often thinking and content are said."""
    mishap: Mishap | None = None
    """What happens in a stream after its first three texts."""
    seen: list[dict[str, Any]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    """Events sent to each answer that was asked for as a stream."""

    async def info(self, request: web.Request) -> web.StreamResponse:
        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return web.Response(status=401, text="Unauthorized")
        info = {"version": "0.5.16", "model_path": self.model, "speculative_algorithm": self.speculative}
        return web.json_response({**info, **self.extra_info})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append(body)
        if self.no_chat is not None:
            return web.Response(status=400, text=self.no_chat)
        words = sum(len(str(message.get("content")).split()) for message in body["messages"])
        message = self._message(body)
        if body.get("stream") and self.streams and message is not None:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            self.sent.append(0)
            with suppress(ConnectionResetError):  # the client has heard enough
                await self._stream(request, response, message)
            return response
        return self._reply(message, words + self.role_tokens)

    async def _stream(self, request: web.Request, response: web.StreamResponse, message: dict[str, Any]) -> None:
        texts = 0
        for choice in [{"delta": {"role": "assistant", "content": ""}}, *self._deltas(message), {"delta": {}}]:
            if texts == 3 and self.mishap is not None:
                await MISHAPS[self.mishap](request, response)
                return
            delta = choice["delta"]
            texts += bool(delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls"))
            await asyncio.sleep(self.pause_s)
            frame = {"choices": [{"index": 0, "finish_reason": None if delta else self.finish, **choice}]}
            await response.write(b"data: " + json.dumps(frame).encode() + b"\n\n")
            self.sent[-1] += 1
        usage = {"prompt_tokens": 5, "completion_tokens": texts, "total_tokens": 5 + texts}
        last = json.dumps({"choices": [], "usage": usage}).encode()
        await response.write(b"data: " + last + b"\n\ndata: [DONE]\n\n")

    def _deltas(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """As sglang cuts it: a few characters each; of a call the name first, then its arguments without it."""
        for name in ("reasoning_content", "content"):
            for piece in re.findall(r"(?s).{1,6}", (message.get(name) or "") * self.repeats):
                yield {"delta": {name: piece}}
        for call in message.get("tool_calls") or ():
            if not isinstance(call, dict):
                yield {"delta": {"tool_calls": [call]}}
                continue
            function = call["function"]
            yield {"delta": {"tool_calls": [{**call, "index": 0, "function": {**function, "arguments": ""}}]}}
            for piece in re.findall(r"(?s).{1,5}", function["arguments"]):
                part = {"index": 0, "id": None, "type": "function", "function": {"name": None, "arguments": piece}}
                yield {"delta": {"tool_calls": [part]}}

    def _message(self, body: dict[str, Any]) -> dict[str, Any] | None:
        if "tools" not in body:
            return {"role": "assistant", "content": self.content, "reasoning_content": self.thought}
        if body["messages"][-1]["role"] == "tool":
            answer = {"content": self.result_answer, "reasoning_content": self.result_thought}
            return None if self.refuse_result else answer
        calls = None if self.call is None else [self.call]
        return {"role": "assistant", "content": self.call_content, "tool_calls": calls}

    def _reply(self, message: dict[str, Any] | None, tokens: int) -> web.StreamResponse:
        if message is None:
            return web.json_response({"object": "error", "message": "unknown role: tool"}, status=400)
        choices = [{"index": 0, "message": message, "finish_reason": self.finish}]
        return web.json_response({"choices": choices, "usage": {"prompt_tokens": tokens}})

    async def plain(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        return web.json_response({"choices": [{"text": " 2"}], "usage": {"prompt_tokens": len(body["prompt"].split())}})

    async def generate(self, _: web.Request) -> web.StreamResponse:
        meta = {"completion_tokens": 64, "spec_accept_length": self.accepted}
        return web.json_response({"text": "…", "meta_info": meta})

    def application(self) -> web.Application:
        app = web.Application()

        async def health(_: web.Request) -> web.StreamResponse:
            return web.Response()

        app.router.add_get("/health", health)
        app.router.add_get("/get_server_info" if self.old_name_of_info else "/server_info", self.info)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/completions", self.plain)
        app.router.add_post("/generate", self.generate)
        return app


async def _tell_an_error(_: web.Request, response: web.StreamResponse) -> None:
    await response.write(b'data: {"error": {"message": "KV cache pool is full", "code": 500}}\n\ndata: [DONE]\n\n')


async def _write_garbage(_: web.Request, response: web.StreamResponse) -> None:
    await response.write(b"data: {not json\n\n")


async def _cut_the_connection(request: web.Request, _: web.StreamResponse) -> None:
    assert request.transport is not None
    request.transport.abort()


async def _end_too_soon(_: web.Request, response: web.StreamResponse) -> None:
    await response.write_eof()


async def _stand_still(_: web.Request, __: web.StreamResponse) -> None:
    await asyncio.sleep(20)


MISHAPS: dict[Mishap, Callable[[web.Request, web.StreamResponse], Awaitable[None]]] = {
    "error": _tell_an_error,
    "garbage": _write_garbage,
    "cut": _cut_the_connection,
    "end": _end_too_soon,
    "stand still": _stand_still,
}


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    """The base URL of a server on a free port."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw(answer: Callable[[asyncio.StreamWriter], Any]) -> AsyncIterator[str]:
    """A socket that answers every request with these bytes, whatever they are."""
    writers = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()


def http(body: bytes, status: str = "200 OK", kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def as_json(value: object) -> bytes:
    return http(json.dumps(value).encode())
