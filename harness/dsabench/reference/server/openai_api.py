"""POST /v1/completions and /v1/chat/completions; bodies as sglang 0.5.23 takes and answers them (entrypoints/openai/protocol.py)."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from dsabench.errors import InputError
from dsabench.reference.engine.request import FinishReason
from dsabench.reference.server import generate_api
from dsabench.reference.server.exchange import Handler, Observe, ResponseStream, ServedRequest, send_events
from dsabench.reference.server.generate_api import Count, RequestLimits, Token
from dsabench.reference.server.rank_messages import RequestProgress

_STRICT = ConfigDict(strict=True, frozen=True)
_DEFAULT_COMPLETION_TOKENS = 16
Choice = dict[str, Any]


class StreamOptions(BaseModel):
    """When a stream says how many tokens it has."""

    model_config = _STRICT

    include_usage: bool | None = False
    """In an event of its own before `[DONE]`."""
    continuous_usage_stats: bool | None = False
    """In every event."""


class OpenAiBody(generate_api.BootstrapBody):
    """What both endpoints take. Fields that are not listed are ignored; those that would change the answer are refused."""

    model_config = _STRICT

    model: str = "default"
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(-1, ge=-1)
    seed: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Token] | None = None
    ignore_eos: bool = False
    rid: str | None = None
    n: Literal[1] = 1
    frequency_penalty: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None
    logit_bias: None = None


class CompletionBody(OpenAiBody):
    """Body of POST /v1/completions."""

    prompt: str | list[str] | list[Token] | list[list[Token]]
    max_tokens: Count = _DEFAULT_COMPLETION_TOKENS
    best_of: Literal[1] | None = None
    echo: Literal[False] = False
    logprobs: None = None
    suffix: None = None


class TextPart(BaseModel):
    """One part of a message."""

    model_config = _STRICT

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a conversation."""

    model_config = _STRICT

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """All of its text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatBody(OpenAiBody):
    """Body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    tools: list[dict[str, Any]] | None = None
    """Shown to the model; random weights call none."""
    logprobs: Literal[False] | None = None


Body = CompletionBody | ChatBody


def chat_prompt(body: ChatBody) -> str:
    """The chat template of the byte tokenizer: a role in angle brackets, the text, a line feed; then the answer's role.

    The load generator, which counts tokens of chats, has it too (`load.tokenizers.Bytewise.runtime_chat`).
    """
    tools = f"<|tools|>{orjson.dumps(body.tools).decode()}\n" if body.tools else ""
    return tools + "".join(f"<|{message.role}|>{message.text}\n" for message in body.messages) + "<|assistant|>"


def requests_of(body: Body, limits: RequestLimits) -> list[ServedRequest]:
    """One entry per prompt, checked as those of /generate are.

    Raises:
        InputError: what is wrong with it, in one line.

    """
    prompt: object
    if isinstance(body, ChatBody):
        prompt, prefix, new_tokens = chat_prompt(body), "chatcmpl", body.max_completion_tokens or body.max_tokens
    else:
        prompt, prefix, new_tokens = body.prompt, "cmpl", body.max_tokens
    many = prompt if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list) else None
    is_text = isinstance(prompt, str) or (many is not None and isinstance(many[0], str))
    rids = [body.rid or f"{prefix}-{uuid.uuid4().hex}" for _ in many or [prompt]]
    sampling = {
        "max_new_tokens": new_tokens, "temperature": body.temperature, "top_p": body.top_p, "top_k": body.top_k,
        "ignore_eos": body.ignore_eos, "stop": body.stop, "stop_token_ids": body.stop_token_ids, "seed": body.seed,
    }  # fmt: skip
    request = {
        "text" if is_text else "input_ids": prompt,
        "sampling_params": sampling,
        **body.model_dump(include=set(generate_api.BootstrapBody.model_fields)),
        "rid": rids if many is not None else rids[0],
    }
    if not prompt:
        raise InputError("Prompt cannot be empty")
    return generate_api.read_generate(orjson.dumps(request), limits)[1]


def usage(prompts: Sequence[int], completions: Sequence[int], cached_tokens: int) -> dict[str, object]:
    """Tokens of a whole answer."""
    return {
        "prompt_tokens": sum(prompts),
        "total_tokens": sum(prompts) + sum(completions),
        "completion_tokens": sum(completions),
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
        "reasoning_tokens": 0,
    }


def ending(finish: FinishReason | None) -> dict[str, object]:
    """The two keys of a choice that say how it ended."""
    return {"finish_reason": finish.type if finish else None, "matched_stop": finish.matched if finish else None}


class OpenAiApiError(web.HTTPException):
    """An answer in the error format of sglang's OpenAI endpoints."""

    def __init__(self, status: int, message: str) -> None:
        self.status_code = status
        kind = "BadRequestError" if status < 500 else "InternalServerError"
        error = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
        super().__init__(text=orjson.dumps(error).decode(), content_type="application/json")


@dataclass(frozen=True, slots=True)
class EngineAccess:
    """What the server lends: whether it takes requests, and the way to its engine."""

    limits: Callable[[], generate_api.RequestLimits]
    """Raises an HTTP exception while no requests are taken."""
    submitted: Callable[[ResponseStream], AbstractAsyncContextManager[None]]
    observe: Observe


class OpenAiApi:
    """Handlers of both endpoints."""

    def __init__(self, engine: EngineAccess) -> None:
        self._engine = engine

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
            body = generate_api.read(kind, await http.read())
            exchange = ResponseStream(requests_of(body, limits), self._engine.observe)
        except InputError as error:
            raise OpenAiApiError(400, str(error)) from error
        reply = _Reply(body, exchange, CHAT if isinstance(body, ChatBody) else COMPLETIONS)
        async with self._engine.submitted(exchange):
            if body.stream:
                return await send_events(http, reply.events())
            updates = await exchange.answers()
        return web.Response(body=orjson.dumps(reply.whole(updates)), content_type="application/json")

    def _limits(self) -> generate_api.RequestLimits:
        try:
            return self._engine.limits()
        except web.HTTPException as error:
            raise OpenAiApiError(error.status, orjson.loads(error.text or "{}")["error"]["message"]) from error


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How one endpoint words its answers."""

    whole_object: str
    chunk_object: str
    choice: Callable[[int, RequestProgress], Choice]
    """The whole answer to one prompt."""
    news: Callable[[int, RequestProgress, str, bool], Iterable[Choice]]
    """(index, update, its new text, whether it is the first) → a choice per event."""


@dataclass(slots=True)
class _Reply:
    """One answer on its way."""

    body: Body
    exchange: ResponseStream
    dialect: _Dialect
    created: int = field(default_factory=lambda: int(time.time()))
    latest: dict[int, RequestProgress] = field(default_factory=dict)

    def whole(self, updates: list[RequestProgress]) -> dict[str, Any]:
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
        return usage(
            [len(request.prompt) for request in requests],
            [update.output_tokens for update in updates],
            sum(request.cached_tokens for request in requests),
        )


def _completion(index: int, update: RequestProgress, text: str | None = None) -> Choice:
    return {"index": index, "text": update.text if text is None else text, "logprobs": None, **ending(update.finish)}


def _message(index: int, update: RequestProgress) -> Choice:
    message = {"role": "assistant", "content": update.text, "reasoning_content": None}
    return {"index": index, "message": message, "logprobs": None, **ending(update.finish)}


def _deltas(index: int, update: RequestProgress, text: str, first: bool) -> Iterator[Choice]:
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
