"""The model that answers, the request for one question, and its answer.

The answer is put together as it comes and its frames are dropped: 512 answers of 128,000 tokens would be 20 GB as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import orjson

from dsabench.errors import HttpFault, one_line
from dsabench.http import DONE, HttpClient
from dsabench.load.read.json_stream import as_int, broken_count, broken_end, spec_accept_length
from dsabench.load.requests import PATHS
from dsabench.model.evals import EvalTask
from dsabench.model.secrets import hide_keys

_THINKING_WORD = {"deepseek-v3": "thinking", "kimi-k2": "thinking"}
"""Keyword of the chat template that turns thinking on; `enable_thinking` for all other modes (run_eval, sglang 0.5.10)."""

WARM_UP = "Name the capital of France in one word."
_PASSING_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_ANSWER_BYTES, _TOKEN_BYTES = 256 << 10, 4 << 10
"""An answer may have so many bytes, and so many more for each token that is asked for. An honest event with one token
has about 400.
"""


@dataclass(frozen=True, slots=True)
class Target:
    """Who is asked."""

    base_url: str
    """Without `/v1` and slash at its end."""
    model: str
    api_key: str | None = field(default=None, repr=False)
    is_sglang: bool = False
    """Whether it tells, where asked, how many drafts it accepted: another server may refuse the question."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. Times are seconds from sending."""

    text: str
    reasoning: str | None
    finish_reason: str | None
    usage: Mapping[str, Any]
    latency_s: float
    first_token_s: float | None
    accept_length: float | None = None
    """Tokens per decode step, where drafts were verified and the server tells."""

    def tokens(self, name: str) -> int | None:
        """A count of the usage, where the server tells it."""
        details = self.usage.get("completion_tokens_details")
        for source in (self.usage, details if isinstance(details, dict) else {}):
            if isinstance(count := source.get(name), int):
                return count
        return None


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer, and why."""

    message: str
    passing: bool
    """Trying again may help."""
    unreachable: bool = False
    """No connection, or it broke: the server may be gone."""


def broken(message: str) -> Failure:
    """The failure of a connection."""
    return Failure(f"connection: {_short(message)}", passing=True, unreachable=True)


def client_for(target: Target, task: EvalTask, timeout_s: float) -> HttpClient:
    """A client whose limits are those of an answer to a question of this eval."""
    bytes_max = _ANSWER_BYTES + _TOKEN_BYTES * task.max_tokens
    return HttpClient(target.base_url, target.api_key, timeout_s, bytes_max=bytes_max)


async def ask(client: HttpClient, task: EvalTask, target: Target, prompt: str) -> Reply | Failure:
    """Send one request and read its answer. Never raises but for cancellation, which closes the connection."""
    body = _body(task, target, prompt)
    answer = _Answer(perf_counter(), task.max_tokens)
    try:
        async with client.stream("POST", PATHS[task.endpoint], body) as stream:
            if stream.status != 200:
                text = (await stream.read()).text
                return Failure(f"http {stream.status}: {_short(text)}", stream.status in _PASSING_STATUS)
            if stream.is_events:
                async for data in stream.events():
                    answer.take(data)
            else:
                answer.take((await stream.read()).body)
                answer.take(DONE)
    except HttpFault as fault:
        if fault.kind == "timeout":
            return Failure(f"timeout: {fault}", passing=True)
        if fault.kind == "too_large":
            return Failure(f"garbage: {fault}", passing=False)
        return broken(str(fault))
    return answer.finish()


@dataclass(slots=True)
class _Answer:
    """One answer as it grows."""

    sent_s: float
    asked: int
    """Tokens at most."""
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _finish_reason: str | None = None
    _usage: Mapping[str, Any] = field(default_factory=dict)
    _accept_length: float | None = None
    _first_s: float | None = None
    _done: bool = False
    _error: str | None = None
    _rule: str | None = None

    def finish(self) -> Reply | Failure:
        """What it came to."""
        if self._error is not None:
            return Failure(self._error, passing=True)
        if not self._done and self._finish_reason is None:
            return broken("the answer ended before its end was told")
        if (rule := self._broken_rule()) is not None:
            return Failure(f"garbage: {rule}", passing=False)
        return Reply(
            text="".join(self._text),
            reasoning="".join(self._reasoning) or None,
            finish_reason=self._finish_reason,
            usage=self._usage,
            latency_s=perf_counter() - self.sent_s,
            first_token_s=None if self._first_s is None else self._first_s - self.sent_s,
            accept_length=self._accept_length,
        )

    def _broken_rule(self) -> str | None:
        """Which rule about counts it breaks."""
        if self._rule is not None:
            return self._rule
        tokens = as_int(self._usage.get("completion_tokens"))
        return None if tokens is None else broken_end(tokens, self.asked, self._finish_reason)

    def take(self, data: bytes) -> None:
        """An event's data, or the whole answer of a server that does not stream."""
        if data == DONE:
            self._done = True
        elif not self._done:
            self._take(data)

    def _take(self, data: bytes) -> None:
        try:
            message = orjson.loads(data)
            if message.get("error"):
                self._error = f"server: {_short(str(message['error']))}"
            if isinstance(message.get("usage"), dict):
                self._take_usage(message["usage"])
            if isinstance(message.get("sglext"), dict):
                self._accept_length = spec_accept_length(message["sglext"]) or self._accept_length
            for choice in message.get("choices") or ():
                self._take_choice(choice)
        except (ValueError, AttributeError, TypeError) as error:
            self._error = f"bad response: {_short(str(error))}"

    def _take_choice(self, choice: Mapping[str, Any]) -> None:
        part = choice.get("delta") or choice.get("message") or choice
        text, reasoning = part.get("content", part.get("text")), part.get("reasoning_content")
        for piece, pieces in ((text, self._text), (reasoning, self._reasoning)):
            if piece:
                if not isinstance(piece, str):
                    raise TypeError(f"text is no text: {piece!r:.60}")
                pieces.append(piece)
        if (text or reasoning) and self._first_s is None:
            self._first_s = perf_counter()
        reason = choice.get("finish_reason")
        if reason is not None and not isinstance(reason, str):
            raise TypeError(f"finish_reason is no text: {reason!r:.60}")
        if reason == "abort":
            self._error = "server: it gave the request up"
        self._finish_reason = reason or self._finish_reason

    def _take_usage(self, usage: Mapping[str, Any]) -> None:
        """The last one counts; none may be less than one before it."""
        before = as_int(self._usage.get("completion_tokens")) or 0
        for name, most, least in (("prompt_tokens", None, 0), ("completion_tokens", self.asked, before)):
            if self._rule is None:
                self._rule = broken_count(name, usage.get(name), most, least)
        self._usage = usage


def _short(text: str) -> str:
    return one_line(hide_keys(text))


def thinking_keyword(mode: str) -> str:
    """What turns thinking on in the chat template of the models with that mode."""
    return _THINKING_WORD.get(mode, "enable_thinking")


def _body(task: EvalTask, target: Target, prompt: str) -> bytes:
    """The JSON of one streaming request."""
    content: dict[str, object] = {"prompt": prompt}
    if task.endpoint == "chat":
        content = {"messages": [{"role": "user", "content": prompt}]}
        if task.thinking is not None:
            content["chat_template_kwargs"] = {thinking_keyword(task.thinking): True}
    if task.stop:
        content["stop"] = list(task.stop)
    drawn = {"temperature": task.temperature, "top_p": task.top_p, "max_tokens": task.max_tokens}
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    told = {"return_spec_tokens_details": True} if target.is_sglang else {}
    return orjson.dumps({"model": target.model, **content, **drawn, **stream, **told})
