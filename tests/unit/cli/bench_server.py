"""A server with the endpoints that bench_serving uses, in a thread of its own; it keeps what it was asked."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

FRAME_TOKENS = (1, 2, 1)
"""Tokens of an answer's frames in turn, as with speculative decoding."""


@dataclass
class BenchServerThread:
    """Open with `with`. Requests whose number is in `refused` get a 503."""

    refused: frozenset[int] = frozenset()
    everything_refused: bool = False
    gap_s: float = 0.002
    asked: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=lambda: {"internal_states": [{"avg_spec_accept_length": 2.5}]})
    generated: int = 0
    url: str = ""

    def __enter__(self) -> Self:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    @property
    def bodies(self) -> list[Any]:
        """Of the requests that generate."""
        return [body for path, body in self.asked if path in {"/generate", "/v1/completions", "/v1/chat/completions"}]

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.path, body))
        match request.path:
            case "/v1/models":
                return web.json_response({"data": [{"id": "the-model"}]})
            case "/server_info":
                return web.json_response(self.info)
            case "/generate" | "/v1/completions" | "/v1/chat/completions":
                self.headers.append(dict(request.headers))
                return await self._generate(request, body)
            case "/health" | "/flush_cache" | "/start_profile" | "/stop_profile":
                return web.Response(text="done")
        return web.Response(status=404)

    async def _generate(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        number, self.generated = self.generated, self.generated + 1
        if self.everything_refused or number in self.refused:
            return web.json_response({"error": {"message": "busy"}}, status=503)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for frame in frames(request.path, body):
            await response.write(b"data: " + json.dumps(frame).encode() + b"\n\n")
            await asyncio.sleep(self.gap_s)
        await response.write(b"data: [DONE]\n\n")
        return response


def frames(path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """One answer; of /generate cumulative, of the others a delta a frame."""
    if path == "/generate":
        asked = body["sampling_params"]["max_new_tokens"]
        prompt = body.get("input_ids") or list(body["text"].encode())
        found: list[dict[str, Any]] = []
        count = 0
        while count < asked:
            count = min(count + FRAME_TOKENS[len(found) % len(FRAME_TOKENS)], asked)
            meta = {"prompt_tokens": len(prompt), "completion_tokens": count, "cached_tokens": 4}
            meta["finish_reason"] = {"type": "length"} if count == asked else None
            found.append({"text": "ab " * count, "meta_info": meta})
        return found
    asked = body.get("max_tokens") or body["max_completion_tokens"]
    deltas: list[dict[str, Any]] = [{"text": "ab ", "delta": {"content": "ab "}} for _ in range(asked)]
    deltas[-1]["finish_reason"] = "length"
    found = [{"choices": [delta]} for delta in deltas]
    details = {"cached_tokens_details": {"device": 3, "host": 1}}
    return [*found, {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": asked}, "sglext": details}]
