"""A scripted OpenAI-compatible server: each prompt gets the completion that a function gives. Real sockets (aiohttp).

`python tests/openai_server.py --delay-s 2` serves until it is stopped and prints its address.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

from aiohttp import web

Script = Callable[[str], "Turn"]


@dataclass(frozen=True)
class Turn:
    """What one request gets."""

    text: str = ""
    reasoning: str | None = None
    finish: str = "stop"
    status: int = 200
    breaks: bool = False  # the connection is cut in the middle of the answer
    delay_s: float = 0.0


@dataclass
class OpenAiServer:
    """Open with `async with`; `asked` holds every body in order."""

    script: Script
    model: str = "scripted"
    streams: bool = True
    context: int | None = None  # max_model_len
    accept_length: float | None = None  # as sglang tells it, to those who ask
    count_tokens: Callable[[str], int] = lambda _: 7  # of a prompt
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    port: int = 0

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/get_model_info", self._info)
        if self.accept_length is not None:
            app.router.add_get("/server_info", self._server_info)
        app.router.add_post("/generate", self._answer)
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=4096)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def prompts(self) -> list[str]:
        """Prompts in the order asked, the warm-up's left out."""
        return [prompt for body in self.asked if not (prompt := prompt_of(body)).startswith("Name the capital")]

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"object": "list", "data": [{"id": self.model, "object": "model", "max_model_len": self.context}]}
        )

    async def _info(self, _: web.Request) -> web.Response:
        return web.json_response({"model_path": self.model})

    async def _server_info(self, _: web.Request) -> web.Response:
        return web.json_response({"model_path": self.model, "version": "0.5.16"})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            prefill_only = body.get("sampling_params", {}).get("max_new_tokens") == 0
            turn = Turn() if prefill_only else self.script(prompt_of(body))
            await asyncio.sleep(turn.delay_s)
            return await self._send(request, body, turn)
        finally:
            self.in_flight -= 1

    async def _send(self, request: web.Request, body: dict[str, Any], turn: Turn) -> web.StreamResponse:
        chat = "messages" in body
        if turn.status != 200:
            return web.json_response({"error": {"message": "scripted"}}, status=turn.status)
        turn = replace(turn, text=_until_stop(turn.text, body))
        count = len(turn.text.split())
        if "text" in body:
            return web.json_response({"text": turn.text, "meta_info": {"completion_tokens": count, "prompt_tokens": 7}})
        asked = body.get("max_tokens") or body.get("max_completion_tokens") or count
        count = asked if turn.finish == "length" else min(count, asked)
        tokens = self.count_tokens(prompt_of(body))
        usage = {"prompt_tokens": tokens, "completion_tokens": count, "total_tokens": tokens + count}
        message = {"role": "assistant", "content": turn.text, "reasoning_content": turn.reasoning}
        if not (self.streams and body.get("stream")):
            choice = {
                "index": 0,
                "finish_reason": turn.finish,
                **({"message": message} if chat else {"text": turn.text}),
            }
            return web.json_response({"choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        half = len(turn.text) // 2
        parts = [{"reasoning_content": turn.reasoning}] if turn.reasoning else []
        parts += [{"content": turn.text[:half]}, {"content": turn.text[half:]}]
        for part in parts:
            await self._event(response, {"delta": part} if chat else {"text": part.get("content") or ""})
            if turn.breaks:
                request.transport.abort()
                return response
        await self._event(response, {"delta": {}} if chat else {"text": ""}, turn.finish)
        last = {"choices": [], "usage": usage}
        if self.accept_length is not None and body.get("return_spec_tokens_details"):
            last["sglext"] = {"spec_tokens_details": {"spec_accept_length": self.accept_length}}
        await response.write(b"data: " + json.dumps(last).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _event(self, response: web.StreamResponse, choice: dict[str, Any], finish: str | None = None) -> None:
        event = {"choices": [{"index": 0, "finish_reason": finish, **choice}]}
        await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")


def prompt_of(body: dict[str, Any]) -> str:
    """The text that was asked."""
    return body["messages"][-1]["content"] if "messages" in body else body.get("prompt", body.get("text"))


def _until_stop(text: str, body: dict[str, Any]) -> str:
    """The text before the first stop string, as servers cut it."""
    stops = body.get("stop") or body.get("sampling_params", {}).get("stop") or []
    found = [at for stop in ([stops] if isinstance(stops, str) else stops) if (at := text.find(stop)) >= 0]
    return text[: min(found)] if found else text


async def _serve(delay_s: float, text: str, port: int) -> None:
    async with OpenAiServer(lambda _: Turn(text, delay_s=delay_s), port=port) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--delay-s", type=float, default=0.0)
    parser.add_argument("--text", default="The answer is 18.")
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    asyncio.run(_serve(args.delay_s, args.text, args.port))
