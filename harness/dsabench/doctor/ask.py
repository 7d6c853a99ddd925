"""Questions to a running server, and its answers as far as they can be trusted: not at all."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from dsabench.doctor.finding import printable

_ANSWER_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON object, or why there is none."""

    body: dict[str, Any] | None
    error: str = ""
    """One line: no connection, another status than 200 with what was said, no JSON."""
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Asker:
    """A base URL, and how long to wait."""

    base_url: str
    """Without a slash at its end."""
    timeout_s: float = 120.0
    api_key: str | None = field(default=None, repr=False)

    async def get(self, path: str) -> Answer:
        """GET, expecting a JSON object."""
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: dict[str, Any]) -> Answer:
        """POST of an object, expecting one."""
        return await self._ask("POST", path, body)

    async def alive(self) -> str | None:
        """None when /health answers 200, else why not."""
        answer = await self._ask("GET", "/health", None)
        return None if answer.status == 200 else answer.error

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Answer:
        headers = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}
        timeout = aiohttp.ClientTimeout(total=self.timeout_s, sock_connect=5.0)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.request(method, self.base_url + path, json=body, allow_redirects=False) as response,
            ):
                text = (await _read(response)).decode(errors="replace")
                status = response.status
        except TimeoutError:
            return Answer(None, f"{path}: no answer within {self.timeout_s:g} s")
        except aiohttp.ClientConnectorError as error:
            why = os.strerror(error.os_error.errno) if error.os_error.errno else error.os_error.strerror
            return Answer(None, f"{path}: no connection to {error.host}:{error.port}: {printable(str(why))}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(None, f"{path}: {printable(str(error) or type(error).__name__)}")
        if status != 200:
            return Answer(None, f"{path}: HTTP {status}: {printable(text, 200)}", status)
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            return Answer(None, f"{path}: not a JSON object: {printable(text, 80)}", status)
        return Answer(found, status=status)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, up to a limit: an endless one must not fill the memory."""
    parts, size = [], 0
    async for part in response.content.iter_chunked(1 << 16):
        parts.append(part)
        size += len(part)
        if size > _ANSWER_BYTES:
            raise ValueError(f"more than {_ANSWER_BYTES >> 20} MiB of answer")
    return b"".join(parts)


def dig(value: Any, *path: str | int) -> Any:
    """What stands at a path of keys and positions; None where anything on it is missing or of another kind."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: Any, *path: str | int) -> str:
    """The text at a path; empty where there is none."""
    found = dig(value, *path)
    return found if isinstance(found, str) else ""


def number_at(value: Any, *path: str | int) -> float | None:
    """The number at a path."""
    found = dig(value, *path)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None
