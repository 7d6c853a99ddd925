"""Who is asked, and what one question to an OpenAI-compatible server comes to.

The answer is put together as it comes and its frames are dropped: 512 answers of 128,000 tokens would be 20 GB as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import orjson

from dsabench.load.sse import DONE, SseEvent, SseReader
from dsabench.model.secrets import hide_keys

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


def broken(message: str) -> Failure:
    """The failure of a connection."""
    return Failure(f"connection: {_short(message)}", passing=True, unreachable=True)


@dataclass(slots=True)
class Answer:
    """One answer as it grows. Feed it the body, then `finish` it."""

    sent_s: float
    status: int = 0
    streams: bool = False
    _raw: list[bytes] = field(default_factory=list)
    _reader: SseReader = field(default_factory=SseReader)
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _finish_reason: str | None = None
    _usage: Mapping[str, Any] = field(default_factory=dict)
    _first_s: float | None = None
    _done: bool = False
    _error: str | None = None

    def feed(self, body: bytes) -> None:
        """A piece of the body, cut anywhere."""
        if self.streams and self.status == 200:
            self._take_events(self._reader.feed(0.0, body))
        else:
            self._raw.append(body)

    def finish(self) -> Reply | Failure:
        """What it came to."""
        if self.status != 200:
            text = b"".join(self._raw).decode(errors="replace")
            return Failure(f"http {self.status}: {_short(text)}", self.status in _PASSING_STATUS)
        if self.streams:
            self._take_events(event for event in self._reader.close() if event.whole or event.data == DONE)
        else:
            self._take(b"".join(self._raw))
            self._done = True
        if self._error is not None:
            return Failure(self._error, passing=True)
        if not self._done and self._finish_reason is None:
            return broken("the answer ended before its end was told")
        return Reply(
            text="".join(self._text),
            reasoning="".join(self._reasoning) or None,
            finish_reason=self._finish_reason,
            usage=self._usage,
            latency_s=perf_counter() - self.sent_s,
            first_token_s=None if self._first_s is None else self._first_s - self.sent_s,
        )

    def _take_events(self, events: Iterable[SseEvent]) -> None:
        for event in events:
            if event.data == DONE:
                self._done = True
            else:
                self._take(event.data)

    def _take(self, data: bytes) -> None:
        """One frame of a stream, or the whole answer of a server that does not stream."""
        try:
            message = orjson.loads(data)
            if message.get("error"):
                self._error = f"server: {_short(str(message['error']))}"
            if isinstance(message.get("usage"), dict):
                self._usage = message["usage"]
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
        self._finish_reason = choice.get("finish_reason") or self._finish_reason


def _short(text: str) -> str:
    return hide_keys(" ".join(text.split()))[:200]
