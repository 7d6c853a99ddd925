"""POST /v1/completions and /v1/chat/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from dsabench.errors import InputError
from dsabench.reference.server import messages, openai_messages
from dsabench.reference.server.calls import Update
from dsabench.reference.server.exchange import Exchange, Observe
from dsabench.reference.server.openai_messages import ChatBody, CompletionBody, ending

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Body = CompletionBody | ChatBody
Choice = dict[str, Any]


class OpenAiRefused(web.HTTPException):
    """An answer in the error format of sglang's OpenAI endpoints."""

    def __init__(self, status: int, message: str) -> None:
        self.status_code = status
        kind = "BadRequestError" if status < 500 else "InternalServerError"
        error = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
        super().__init__(text=orjson.dumps(error).decode(), content_type="application/json")


@dataclass(frozen=True, slots=True)
class Gate:
    """What the server lends: whether it takes requests, and the way to its engine."""

    limits: Callable[[], messages.Limits]
    """Raises an HTTP exception while no requests are taken."""
    submitted: Callable[[Exchange], AbstractAsyncContextManager[None]]
    observe: Observe


class OpenAi:
    """Handlers of both endpoints."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @property
    def handlers(self) -> dict[str, Handler]:
        """Path → handler, all for POST."""
        return {"/v1/completions": self.completions, "/v1/chat/completions": self.chat}

    async def completions(self, http: web.Request) -> web.StreamResponse:
        """Continue one or several texts."""
        return await self._answer(http, CompletionBody)

    async def chat(self, http: web.Request) -> web.StreamResponse:
        """Answer a conversation."""
        return await self._answer(http, ChatBody)

    async def _answer(self, http: web.Request, kind: type[Body]) -> web.StreamResponse:
        limits = self._limits()
        try:
            body = messages.read(kind, await http.read())
            exchange = Exchange(openai_messages.wanted_of(body, limits), self._gate.observe)
        except InputError as error:
            raise OpenAiRefused(400, str(error)) from error
        reply = _Reply(body, exchange, CHAT if isinstance(body, ChatBody) else COMPLETIONS)
        async with self._gate.submitted(exchange):
            if body.stream:
                return await _stream(http, reply)
            updates = await exchange.answers()
        return web.Response(body=orjson.dumps(reply.whole(updates)), content_type="application/json")

    def _limits(self) -> messages.Limits:
        try:
            return self._gate.limits()
        except web.HTTPException as error:
            raise OpenAiRefused(error.status, orjson.loads(error.text or "{}")["error"]["message"]) from error


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How one endpoint words its answers."""

    whole_object: str
    chunk_object: str
    choice: Callable[[int, Update], Choice]
    """The whole answer to one prompt."""
    news: Callable[[int, Update, str, bool], Iterable[Choice]]
    """(index, update, its new text, whether it is the first) → a choice per event."""


@dataclass(slots=True)
class _Reply:
    """One answer on its way."""

    body: Body
    exchange: Exchange
    dialect: _Dialect
    created: int = field(default_factory=lambda: int(time.time()))
    latest: dict[int, Update] = field(default_factory=dict)

    def whole(self, updates: list[Update]) -> dict[str, Any]:
        """In one piece."""
        self.latest = dict(enumerate(updates))
        choices = [self.dialect.choice(index, update) for index, update in self.latest.items()]
        return {**self._head(self.dialect.whole_object), "choices": choices, "usage": self._usage()}

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """As it comes."""
        options = self.body.stream_options
        head = self._head(self.dialect.chunk_object)
        async with aclosing(self.exchange.frames()) as frames:
            async for index, update in frames:
                before = self.latest.get(index)
                self.latest[index] = update
                text = update.text[len(before.text) if before else 0 :]
                usage = self._usage(index) if options and options.continuous_usage_stats else None
                for choice in self.dialect.news(index, update, text, before is None):
                    yield {**head, "choices": [choice], "usage": usage}
        if options and options.include_usage:
            yield {**head, "choices": [], "usage": self._usage()}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.exchange.requests[0].id, "object": kind, "created": self.created, "model": self.body.model}

    def _usage(self, index: int | None = None) -> dict[str, object]:
        requests = self.exchange.requests if index is None else [self.exchange.requests[index]]
        updates = self.latest.values() if index is None else [self.latest[index]]
        return openai_messages.usage(
            [len(request.prompt) for request in requests],
            [update.output_tokens for update in updates],
            sum(request.cached_tokens for request in requests),
        )


def _completion(index: int, update: Update, text: str | None = None) -> Choice:
    return {"index": index, "text": update.text if text is None else text, "logprobs": None, **ending(update.finish)}


def _message(index: int, update: Update) -> Choice:
    message = {"role": "assistant", "content": update.text, "reasoning_content": None}
    return {"index": index, "message": message, "logprobs": None, **ending(update.finish)}


def _deltas(index: int, update: Update, text: str, first: bool) -> Iterator[Choice]:
    """The role comes first and the reason last, each in an event of its own; a step without text sends none."""
    if first:
        yield _delta(index, {"role": "assistant", "content": ""})
    if text:
        yield _delta(index, {"content": text})
    if update.finish:
        yield _delta(index, {}) | ending(update.finish)


def _delta(index: int, delta: Choice) -> Choice:
    return {"index": index, "delta": {"reasoning_content": None, **delta}, "logprobs": None, **ending(None)}


COMPLETIONS = _Dialect(
    "text_completion",
    "text_completion",
    _completion,
    lambda index, update, text, _: (_completion(index, update, text),),
)
CHAT = _Dialect("chat.completion", "chat.completion.chunk", _message, _deltas)


async def _stream(http: web.Request, reply: _Reply) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(http)
    async with aclosing(reply.events()) as events:
        async for event in events:
            await response.write(b"data: " + orjson.dumps(event) + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response
