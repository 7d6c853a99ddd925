"""`python -m dsabench.reference.router --pd-disaggregation --prefill URL PORT --decode URL --port 8000`.

Stands before prefill and decode servers: sends each request to one of either with a room in which they meet, and passes
on what the decode server says (sglang_router's flags, as far as they mean something here). It retries nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import orjson
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, web

S = TypeVar("S")
_BODY_BYTES = 64 << 20
_ROOMS = 2**63
_FORWARDED = ("/generate", "/v1/completions", "/v1/chat/completions")
_ASKED = ("/v1/models", "/server_info", "/get_server_info", "/model_info", "/get_model_info")
_HEADERS = ("Content-Type", "Cache-Control")


@dataclass(frozen=True, slots=True)
class PrefillServer:
    """A prefill server and the port on which it hands over."""

    url: str
    bootstrap_port: int


class PdRouter:
    """Handlers, and the servers behind them."""

    def __init__(self, prefills: Sequence[PrefillServer], decodes: Sequence[str], policy: str) -> None:
        self._urls = [*(one.url for one in prefills), *decodes]
        self._next_prefill, self._next_decode = _chooser(prefills, policy), _chooser(decodes, policy)
        self._decodes = decodes

    def application(self) -> web.Application:
        """All routes."""
        app = web.Application(client_max_size=_BODY_BYTES)
        app.add_routes([web.post(path, self.forward) for path in _FORWARDED])
        app.add_routes([web.get(path, self.ask_decode) for path in _ASKED])
        app.add_routes([web.get("/health", self.health), web.post("/flush_cache", self.flush)])
        app.cleanup_ctx.append(self._connect)
        return app

    async def _connect(self, _: web.Application):  # type: ignore[no-untyped-def]  # noqa: ANN202 (aiohttp's own shape)
        async with ClientSession(timeout=ClientTimeout(total=None)) as self._session:
            yield

    async def forward(self, http: web.Request) -> web.StreamResponse:
        """To a prefill and a decode server; the answer is the decode server's, or the first one's refusal."""
        prefill, decode = self._next_prefill(), self._next_decode()
        try:
            body = orjson.loads(await http.read())
            many = _prompts(body)
        except (orjson.JSONDecodeError, TypeError):
            return _error(400, "the body is no JSON object")
        rooms = [random.randrange(_ROOMS) for _ in range(many or 1)]
        body |= {
            "bootstrap_host": urlsplit(prefill.url).hostname,
            "bootstrap_port": prefill.bootstrap_port,
            "bootstrap_room": rooms[0] if many is None else rooms,
        }
        async with AsyncExitStack() as stack:
            first = asyncio.ensure_future(self._post(stack, prefill.url + http.path, body))
            second = asyncio.ensure_future(self._post(stack, decode + http.path, body))
            stack.callback(first.cancel)
            stack.callback(second.cancel)
            try:
                await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
                refused = first.done() and not second.done() and first.result().status >= 400
                return await _pass_on(http, first.result() if refused else await second)
            except ClientError as error:
                return _error(502, f"a server is gone: {error}")

    async def ask_decode(self, http: web.Request) -> web.StreamResponse:
        """A decode server's answer."""
        return await self._from(self._decodes[0] + http.path)

    async def health(self, _: web.Request) -> web.StreamResponse:
        """200 when all servers are."""
        answers = [await self._from(url + "/health") for url in self._urls]
        return web.Response(status=max(answer.status for answer in answers))

    async def flush(self, _: web.Request) -> web.StreamResponse:
        """Of all servers."""
        for url in self._urls:
            async with self._session.post(url + "/flush_cache") as answer:
                if answer.status != 200:
                    return web.Response(status=answer.status, text=await answer.text())
        return web.Response(text="Cache flushed.\n")

    async def _from(self, url: str) -> web.Response:
        try:
            async with self._session.get(url) as answer:
                return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
        except ClientError as error:
            return _error(503, f"a server is gone: {error}")

    async def _post(self, stack: AsyncExitStack, url: str, body: object) -> ClientResponse:
        headers = {"Content-Type": "application/json"}
        return await stack.enter_async_context(self._session.post(url, data=orjson.dumps(body), headers=headers))


async def _pass_on(http: web.Request, answer: ClientResponse) -> web.StreamResponse:
    headers = {name: answer.headers[name] for name in _HEADERS if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(http)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response


def _prompts(body: dict[str, object]) -> int | None:
    """How many there are; None for one that stands alone."""
    for key in ("text", "prompt", "input_ids"):
        match body.get(key):
            case [first, *_] as several if isinstance(first, str | list):
                return len(several)
    return None


def _chooser(servers: Sequence[S], policy: str) -> Callable[[], S]:
    turns = itertools.cycle(servers)
    return (lambda: random.choice(servers)) if policy == "random" else (lambda: next(turns))


def _error(status: int, message: str) -> web.Response:
    body = orjson.dumps({"error": {"message": message, "code": status}})
    return web.Response(status=status, body=body, content_type="application/json")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m dsabench.reference.router", description=__doc__)
    parser.add_argument("--pd-disaggregation", action="store_true", required=True)
    parser.add_argument("--prefill", nargs=2, action="append", required=True, metavar=("URL", "PORT"))
    parser.add_argument("--decode", action="append", required=True, metavar="URL")
    parser.add_argument("--policy", choices=("round_robin", "random"), default="round_robin")
    parser.add_argument("--disable-retries", action="store_true", help="accepted for sglang's sake: nothing is retried")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args(argv)
    prefills = [PrefillServer(url, int(port)) for url, port in args.prefill]
    app = PdRouter(prefills, args.decode, args.policy).application()
    web.run_app(app, host=args.host, port=args.port, handler_cancellation=True, shutdown_timeout=1.0, access_log=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
