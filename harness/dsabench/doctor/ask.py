"""Questions to a running server, and its answers as far as they can be trusted: not at all."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import aiohttp

from dsabench.doctor.chat_stream import ChatStream
from dsabench.load.sse import DONE, SseReader
from dsabench.machine.checks import one_line
from dsabench.runtimes.endpoint import parts_of, text_of

_FAILURES = (aiohttp.ClientError, OSError, ValueError)
"""TimeoutError is an OSError, and told apart where it matters."""

Decided = Callable[[ChatStream], bool]
"""Whether an answer has to be heard no further."""


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """A JSON object, or why there is none."""

    body: dict[str, Any] | None
    error: str = ""
    """One line: no connection, another status than 200 with what was said, no JSON."""
    status: int | None = None


@dataclass(frozen=True, slots=True)
class ServerProbe:
    """A base URL, and how long to wait."""

    base_url: str
    """Without a slash at its end."""
    timeout_s: float = 120.0
    """For an answer; for the next piece of one that is listened to."""
    question_timeout_s: float = 60.0
    """For the whole of an answer that is listened to."""
    api_key: str | None = field(default=None, repr=False)
    tell: Callable[[str], None] = lambda _: None
    """Told what is asked next."""

    async def get(self, path: str) -> JsonAnswer:
        """GET, expecting a JSON object."""
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: dict[str, Any]) -> JsonAnswer:
        """POST of an object, expecting one."""
        return await self._ask("POST", path, body)

    async def alive(self) -> str | None:
        """None when /health answers 200, else why not."""
        answer = await self._ask("GET", "/health", None)
        return None if answer.status == 200 else answer.error

    async def listen(self, path: str, body: dict[str, Any], decided: Decided) -> ChatStream:
        """POST whose answer is heard as it comes. Once it is decided the connection is closed, and the request ends."""
        heard, began_s = ChatStream(), perf_counter()
        timeout = aiohttp.ClientTimeout(
            total=self.question_timeout_s, sock_connect=5.0, sock_read=min(self.timeout_s, self.question_timeout_s)
        )
        try:
            async with self._request("POST", path, {**body, "stream": True}, timeout) as response:
                if response.status != 200:
                    return ChatStream(error=_refusal(path, response.status, await text_of(response)), refused=True)
                async with aclosing(_frames(response)) as frames:
                    async for data in frames:
                        heard = heard.after(data, perf_counter() - began_s)
                        if heard.is_over or decided(heard):
                            break
                    else:
                        heard = replace(heard, error=_broken(heard))
                response.close()
        except TimeoutError:
            return self._late(path, heard, perf_counter() - began_s)
        except _FAILURES as error:
            broke_off = heard.last_s is not None or isinstance(error, aiohttp.ClientPayloadError)
            return replace(heard, error=f"{path}: {_broken(heard)}" if broke_off else _why(path, error))
        return replace(heard, error=heard.error and f"{path}: {heard.error}")

    def _late(self, path: str, heard: ChatStream, waited_s: float) -> ChatStream:
        """What a time limit makes of an answer: where nothing came there is nothing to judge."""
        if heard.last_s is None:
            return replace(heard, error=f"{path}: no answer within {waited_s:.1f} s")
        if waited_s < self.question_timeout_s:
            return replace(heard, error=f"{path}: nothing more for {self.timeout_s:g} s after {heard.told}")
        return replace(heard, limit_s=self.question_timeout_s)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> JsonAnswer:
        timeout = aiohttp.ClientTimeout(total=self.timeout_s, sock_connect=5.0)
        try:
            async with self._request(method, path, body, timeout) as response:
                text, status = await text_of(response), response.status
        except TimeoutError:
            return JsonAnswer(None, f"{path}: no answer within {self.timeout_s:g} s")
        except _FAILURES as error:
            return JsonAnswer(None, _why(path, error))
        if status != 200:
            return JsonAnswer(None, _refusal(path, status, text), status)
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            return JsonAnswer(None, f"{path}: not a JSON object: {one_line(text, 80)}", status)
        return JsonAnswer(found, status=status)

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None, timeout: aiohttp.ClientTimeout
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        headers = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.request(method, self.base_url + path, json=body, allow_redirects=False) as response,
        ):
            yield response


def _broken(heard: ChatStream) -> str:
    return f"the answer broke off: {heard.told}"


def _why(path: str, error: Exception) -> str:
    """Why no answer came."""
    if isinstance(error, aiohttp.ClientConnectorError):
        why = os.strerror(error.os_error.errno) if error.os_error.errno else error.os_error.strerror
        return f"{path}: no connection to {error.host}:{error.port}: {one_line(str(why))}"
    return f"{path}: {one_line(str(error) or type(error).__name__)}"


def _refusal(path: str, status: int, text: str) -> str:
    return f"{path}: HTTP {status}: {one_line(text, 200)}"


async def _frames(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """The data of each event; the whole body of a server that does not stream, and then its end."""
    if response.content_type != "text/event-stream":
        yield (await text_of(response)).encode() or b" "
        yield DONE
        return
    reader = SseReader()
    async for part in parts_of(response):
        for event in reader.feed(0.0, part):
            yield event.data
    for event in reader.close():
        if event.whole or event.data == DONE:
            yield event.data
