"""Servers on real sockets that answer as a well or badly started sglang would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

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
    seen: list[dict[str, Any]] = field(default_factory=list)

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
        return self._reply(self._message(body), words + self.role_tokens)

    def _message(self, body: dict[str, Any]) -> dict[str, Any] | None:
        if "tools" not in body:
            return {"role": "assistant", "content": self.content, "reasoning_content": self.thought}
        if body["messages"][-1]["role"] == "tool":
            return None if self.refuse_result else {"content": self.result_answer}
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
