"""Questions to a running server, and its answers as far as they can be trusted: not at all."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import orjson

from dsabench.doctor.chat_stream import ChatStream
from dsabench.errors import HttpFault, one_line
from dsabench.http import DONE, HttpAnswer, HttpClient, HttpStream

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
        return await self._ask(path, None)

    async def post(self, path: str, body: dict[str, Any]) -> JsonAnswer:
        """POST of an object, expecting one."""
        return await self._ask(path, body)

    async def read(self, path: str) -> tuple[str | None, str]:
        """GET of a text; None, and why there is none."""
        answer = await self._answer(path, None)
        if isinstance(answer, str):
            return None, answer
        return (answer.text, "") if answer.status == 200 else (None, _refusal(path, answer))

    async def alive(self) -> str | None:
        """None when /health answers 200, else why not."""
        answer = await self._ask("/health", None)
        return None if answer.status == 200 else answer.error

    async def listen(self, path: str, body: dict[str, Any], decided: Decided) -> ChatStream:
        """POST whose answer is heard as it comes. Once it is decided the connection is closed, and the request ends."""
        heard, began_s, has_begun = ChatStream(), perf_counter(), False
        idle_s = min(self.timeout_s, self.question_timeout_s)
        client = HttpClient(self.base_url, self.api_key, self.question_timeout_s, idle_s)
        try:
            async with client.stream("POST", path, {**body, "stream": True}) as answer:
                if answer.status != 200:
                    return ChatStream(error=_refusal(path, await answer.read()), refused=True)
                has_begun = True
                async with aclosing(_frames(answer)) as frames:
                    async for data in frames:
                        heard = heard.after(data, perf_counter() - began_s)
                        if heard.is_over or decided(heard):
                            break
                    else:
                        heard = replace(heard, error=_broken(heard))
        except HttpFault as fault:
            if fault.kind == "timeout":
                return self._late(path, heard, perf_counter() - began_s)
            broke_off = heard.last_s is not None or (has_begun and fault.kind == "broken")
            return replace(heard, error=f"{path}: {_broken(heard) if broke_off else one_line(str(fault))}")
        return replace(heard, error=heard.error and f"{path}: {heard.error}")

    def _late(self, path: str, heard: ChatStream, waited_s: float) -> ChatStream:
        """What a time limit makes of an answer: where nothing came there is nothing to judge."""
        if heard.last_s is None:
            return replace(heard, error=f"{path}: no answer within {waited_s:.1f} s")
        if waited_s < self.question_timeout_s:
            return replace(heard, error=f"{path}: nothing more for {self.timeout_s:g} s after {heard.told}")
        return replace(heard, limit_s=self.question_timeout_s)

    async def _ask(self, path: str, body: dict[str, Any] | None) -> JsonAnswer:
        answer = await self._answer(path, body)
        if isinstance(answer, str):
            return JsonAnswer(None, answer)
        if answer.status != 200:
            return JsonAnswer(None, _refusal(path, answer), answer.status)
        try:
            found = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            return JsonAnswer(None, f"{path}: not a JSON object: {one_line(answer.text, 80)}", answer.status)
        return JsonAnswer(found, status=answer.status)

    async def _answer(self, path: str, body: dict[str, Any] | None) -> HttpAnswer | str:
        """A whole answer of any status, or why there is none."""
        client = HttpClient(self.base_url, self.api_key, self.timeout_s)
        try:
            return await (client.get(path) if body is None else client.post(path, body))
        except HttpFault as fault:
            return f"{path}: {one_line(str(fault))}"


def _broken(heard: ChatStream) -> str:
    return f"the answer broke off: {heard.told}"


def _refusal(path: str, answer: HttpAnswer) -> str:
    return f"{path}: HTTP {answer.status}: {one_line(answer.text, 200)}"


async def _frames(answer: HttpStream) -> AsyncGenerator[bytes]:
    """The data of each event; the whole body of a server that does not stream, and then its end."""
    if answer.is_events:
        async for data in answer.events():
            yield data
    else:
        yield (await answer.read()).body or b" "
        yield DONE
