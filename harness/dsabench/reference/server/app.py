"""HTTP: sglang's endpoints over a `RankPool`."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import orjson
from aiohttp import web

from dsabench.errors import InputError
from dsabench.reference.engine.request import SamplingParams
from dsabench.reference.server import generate_api
from dsabench.reference.server.arguments import ServerArgs
from dsabench.reference.server.disaggregation import KvTransferError, KvTransferServer, fetch_kv
from dsabench.reference.server.exchange import Handler, ResponseStream, ServedRequest, send_events
from dsabench.reference.server.metrics import ServerMetrics, server_info
from dsabench.reference.server.openai_api import EngineAccess, OpenAiApi
from dsabench.reference.server.rank_messages import RequestProgress
from dsabench.reference.server.rank_pool import RankPool

_HEALTH_TIMEOUT_S = 20.0
_PROBE = SamplingParams(max_new_tokens=1, temperature=0.0, ignore_eos=True)
_BODY_BYTES = 64 << 20


class ApiError(web.HTTPException):
    """An answer in sglang's error format."""

    def __init__(self, status: int, message: str) -> None:
        self.status_code = status
        super().__init__(
            text=orjson.dumps({"error": {"message": message, "code": status}}).decode(), content_type="application/json"
        )


class ReferenceApp:
    """Handlers and what they share."""

    def __init__(self, args: ServerArgs, ranks: RankPool) -> None:
        self._args, self._ranks = args, ranks
        self._name = args.served_model_name or args.model_path
        self.draining = False
        self._started_s = time.time()
        self._metrics = ServerMetrics(self._name)
        self._running: set[str] = set()
        self.transfers = KvTransferServer()

    def application(self) -> web.Application:
        """All routes."""
        app = web.Application(client_max_size=_BODY_BYTES, middlewares=[_errors_as_json])
        both: dict[str, Handler] = {"/flush_cache": self.flush_cache}
        posts: dict[str, Handler] = {"/generate": self.generate, "/abort_request": self.abort_request}
        posts["/set_internal_state"] = self.set_internal_state
        posts |= OpenAiApi(EngineAccess(self._limits, self._submitted, self._observe)).handlers
        gets: dict[str, Handler] = {
            "/health": self.health,
            "/health_generate": self.health_generate,
            "/v1/models": self.models,
            "/model_info": self.model_info,
            "/get_model_info": self.model_info,
            "/server_info": self.server_info,
            "/get_server_info": self.server_info,
            "/metrics": self.metrics,
        }
        app.add_routes([web.get(path, handler) for path, handler in {**gets, **both}.items()])
        app.add_routes([web.post(path, handler) for path, handler in {**posts, **both}.items()])
        return app

    async def generate(self, http: web.Request) -> web.StreamResponse:
        """POST /generate: text or input_ids, one or several, streamed or not."""
        limits = self._limits()
        try:
            body, requests = generate_api.read_generate(await http.read(), limits)
        except InputError as error:
            raise ApiError(400, str(error)) from error
        exchange = ResponseStream(requests, self._observe)
        ids = [request.id for request in exchange.requests]
        if len(set(ids)) < len(ids) or not self._running.isdisjoint(ids):
            raise ApiError(400, "rid: another request with this id is running")
        async with self._submitted(exchange):
            if body.stream:
                return await send_events(http, self._frames(exchange, numbered=body.is_batch))
            answers = [
                generate_api.answer(*pair) for pair in zip(exchange.requests, await exchange.answers(), strict=True)
            ]
        return _json(answers if body.is_batch else answers[0])

    async def drain(self, grace_s: float) -> None:
        """Take no more requests, let the running ones end for a while, then abort them."""
        self.draining = True
        if not await self._quiet(grace_s):
            self._ranks.abort(None, "the server is shutting down")
            await self._quiet(grace_s / 2)

    async def _quiet(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while self._running:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return False
        return True

    async def health(self, _: web.Request) -> web.StreamResponse:
        """200 when requests are taken, else 503."""
        return web.Response(status=503 if self.draining or self._ranks.ready is None else 200)

    async def health_generate(self, _: web.Request) -> web.StreamResponse:
        """Generate a token; 503 where that takes longer than 20 s."""
        self._limits()
        exchange = ResponseStream([ServedRequest(f"HEALTH_CHECK_{uuid.uuid4().hex}", [0], _PROBE)], self._observe)
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                async with self._submitted(exchange, inside=True):
                    await exchange.answers()
        except TimeoutError:
            return web.Response(status=503)
        return web.Response()

    async def models(self, _: web.Request) -> web.StreamResponse:
        """OpenAI's list of models."""
        started = self._ranks.ready
        length = started.context_length if started else None
        card = {"id": self._name, "object": "model", "created": int(self._started_s), "owned_by": "sglang",
                "root": self._name, "max_model_len": length}  # fmt: skip
        return _json({"object": "list", "data": [card]})

    async def model_info(self, _: web.Request) -> web.StreamResponse:
        """What is served."""
        return _json(
            {
                "model_path": self._args.model_path,
                "tokenizer_path": self._args.model_path,
                "is_generation": True,
                "weight_version": "default",
                "model_type": "deepseek_v32",
                "architectures": ["DeepseekV32ForCausalLM"],
            }
        )

    async def server_info(self, _: web.Request) -> web.StreamResponse:
        """Resolved settings, load, and counters of what ran."""
        started = self._ranks.ready
        if started is None:
            raise ApiError(503, "the server is not ready")
        return _json(server_info(started, await self._ranks.statuses()))

    async def flush_cache(self, _: web.Request) -> web.StreamResponse:
        """Empty the prefix cache; 400 while requests are running."""
        self._limits()
        if not await self._ranks.flush():
            raise ApiError(400, "Flush cache failed: requests are running or waiting.")
        return web.Response(text="Cache flushed.\n")

    async def set_internal_state(self, http: web.Request) -> web.StreamResponse:
        """Change what can change while the server runs; answers per group whether it did, as sglang."""
        self._limits()
        try:
            body = generate_api.read(generate_api.ChangeBody, await http.read())
        except InputError as error:
            raise ApiError(400, str(error)) from error
        return _json(await self._ranks.limit(body.server_args.pp_max_micro_batch_size))

    async def abort_request(self, http: web.Request) -> web.StreamResponse:
        """End one request, or all."""
        try:
            body = generate_api.read(generate_api.AbortBody, await http.read())
        except InputError as error:
            raise ApiError(400, str(error)) from error
        if not body.rid and not body.abort_all:
            raise ApiError(400, "give rid, or abort_all")
        self._ranks.abort(None if body.abort_all else body.rid, "aborted by a request")
        return web.Response()

    async def metrics(self, _: web.Request) -> web.StreamResponse:
        """Prometheus's text format."""
        started = self._ranks.ready
        statuses = await self._ranks.statuses() if started else []
        return web.Response(
            body=self._metrics.render(started, statuses), headers={"Content-Type": "text/plain; version=0.0.4"}
        )

    def _limits(self) -> generate_api.RequestLimits:
        started = self._ranks.ready
        if started is None or self.draining:
            raise ApiError(503, "the server is shutting down" if self.draining else "the server is not ready")
        return generate_api.RequestLimits(
            context=started.context_length, pool=started.pool_tokens, prompt=started.prompt_tokens
        )

    @asynccontextmanager
    async def _submitted(self, exchange: ResponseStream, *, inside: bool = False) -> AsyncIterator[None]:
        """Run the requests; whatever is unfinished at the end (the client went away) is aborted.

        With disaggregation only requests of the server itself (`inside`) may come without a meeting.
        """
        ids = {request.id for request in exchange.requests}
        self._running |= ids
        try:
            if not inside:
                await self._meet(exchange)
            for request in exchange.requests:
                self._ranks.submit(request)
            yield
        finally:
            for request in exchange.unfinished:
                self._ranks.abort(request.id, "the client went away")
            for request in exchange.requests:
                if request.hand_over and request.meeting is not None:
                    self.transfers.put(request.meeting.room, request.transfer)
            self._running -= ids

    async def _meet(self, exchange: ResponseStream) -> None:
        """Disaggregation: a prefill server stops after the first token, a decode server waits for what it made of it."""
        mode = self._args.disaggregation_mode
        if mode == "null":
            return
        if any(request.meeting is None for request in exchange.requests):
            raise ApiError(
                400, f"a {mode} server takes requests from its router, which says where the KV changes hands"
            )
        if mode == "prefill":
            for request in exchange.requests:
                request.hand_over = True
                request.sampling = replace(request.sampling, max_new_tokens=1)
            return
        meetings = [request.meeting for request in exchange.requests if request.meeting is not None]
        try:
            transfers = await asyncio.gather(*(fetch_kv(meeting) for meeting in meetings))
        except KvTransferError as error:
            raise ApiError(500, str(error)) from error
        for request, transfer in zip(exchange.requests, transfers, strict=True):
            request.transfer = transfer

    def _observe(self, request: ServedRequest, update: RequestProgress, before: RequestProgress | None) -> None:
        if before is None:
            self._metrics.first_token_s.observe(update.at_s - request.arrived_s)
        else:
            self._metrics.between_tokens_s.observe(update.at_s - before.at_s)
        if update.finish is not None:
            self._metrics.whole_request_s.observe(update.at_s - request.arrived_s)

    async def _frames(self, exchange: ResponseStream, *, numbered: bool) -> AsyncGenerator[dict[str, object]]:
        async with aclosing(exchange.frames()) as frames:
            async for index, update in frames:
                frame = generate_api.answer(exchange.requests[index], update)
                yield {**frame, "index": index} if numbered else frame


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give aiohttp's own refusals (no such path, method, body too large) the format of ours."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.content_type == "application/json":
            raise
        return _json({"error": {"message": error.reason, "code": error.status}}, error.status)
    except ConnectionResetError:  # the client went away in the middle of a stream
        return web.Response()


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")
