"""One question to an OpenAI-compatible server, read as it streams.

The answer is put together as it comes and its frames are dropped: 512 answers of 128,000 tokens would be 20 GB as bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import aiohttp
import orjson

from dsabench.load.sse import DONE, SseReader
from dsabench.model.secrets import hide_keys

_IDLE_CONNECTION_S = 2.0
_PASSING_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Target:
    """Who is asked."""

    base_url: str
    """Without `/v1` and slash at its end."""
    model: str
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. Times are seconds from sending."""

    text: str
    reasoning: str | None
    finish_reason: str | None
    usage: Mapping[str, Any]
    latency_s: float
    first_token_s: float | None

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


@asynccontextmanager
async def open_session(target: Target) -> AsyncIterator[aiohttp.ClientSession]:
    """Connections for as many requests as are in flight."""
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Content-Type": "application/json"}
    if target.api_key:
        headers["Authorization"] = f"Bearer {target.api_key}"
    # A burst of a thousand requests is sent a tenth faster without the race of addresses and without cookies.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_CONNECTION_S, happy_eyeballs_delay=None)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=headers, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        yield session


async def ask(session: aiohttp.ClientSession, url: str, body: bytes, timeout_s: float) -> Reply | Failure:
    """Send one request and read its answer. Never raises but for cancellation."""
    sent_s = perf_counter()
    try:
        async with asyncio.timeout(timeout_s), session.post(url, data=body) as response:
            if response.status != 200:
                text = await response.text(errors="replace")
                return Failure(f"http {response.status}: {_short(text)}", response.status in _PASSING_STATUS)
            return await _read(response, sent_s)
    except TimeoutError:
        return Failure(f"timeout: not finished after {timeout_s:g} s", passing=True)
    except (aiohttp.ClientError, OSError) as error:
        return Failure(f"connection: {_short(str(error) or type(error).__name__)}", passing=True, unreachable=True)


@dataclass(slots=True)
class _Answer:
    """An answer as it grows."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    first_s: float | None = None
    error: str | None = None

    def take(self, message: object) -> None:
        """One frame of a stream, or the whole answer of a server that does not stream."""
        if not isinstance(message, dict):
            self.error = "not a JSON object"
            return
        if message.get("error"):
            self.error = _short(str(message["error"]))
        if isinstance(message.get("usage"), dict):
            self.usage = message["usage"]
        for choice in message.get("choices") or ():
            part = choice.get("delta") or choice.get("message") or choice
            text, reasoning = part.get("content", part.get("text")), part.get("reasoning_content")
            if text:
                self.text.append(text)
            if reasoning:
                self.reasoning.append(reasoning)
            if (text or reasoning) and self.first_s is None:
                self.first_s = perf_counter()
            self.finish_reason = choice.get("finish_reason") or self.finish_reason


async def _read(response: aiohttp.ClientResponse, sent_s: float) -> Reply | Failure:
    answer, ended = _Answer(), False
    try:
        if response.content_type == "text/event-stream":
            ended = await _read_stream(response, answer)
        else:
            answer.take(orjson.loads(await response.read()))
            ended = True
    except (ValueError, AttributeError, TypeError) as error:
        return Failure(f"bad response: {_short(str(error))}", passing=True)
    if answer.error is not None:
        return Failure(f"server: {answer.error}", passing=True)
    if not ended and answer.finish_reason is None:
        return Failure("connection: the answer ended before its end was told", passing=True, unreachable=True)
    done_s = perf_counter()
    return Reply(
        text="".join(answer.text),
        reasoning="".join(answer.reasoning) or None,
        finish_reason=answer.finish_reason,
        usage=answer.usage,
        latency_s=done_s - sent_s,
        first_token_s=None if answer.first_s is None else answer.first_s - sent_s,
    )


async def _read_stream(response: aiohttp.ClientResponse, answer: _Answer) -> bool:
    """Whether `[DONE]` came."""
    reader, ended = SseReader(), False
    async for chunk in response.content.iter_any():
        for event in reader.feed(0.0, chunk):
            if event.data == DONE:
                ended = True
            else:
                answer.take(orjson.loads(event.data))
    for event in reader.close():
        if event.data == DONE:
            ended = True
        elif event.whole:
            answer.take(orjson.loads(event.data))
    return ended


def _short(text: str) -> str:
    return hide_keys(" ".join(text.split()))[:200]
