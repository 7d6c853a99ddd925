"""The HTTP side of a server that speaks sglang's endpoints, whoever started it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

import aiohttp
from pydantic import JsonValue, TypeAdapter, ValidationError

from dsabench.errors import TrialFault
from dsabench.model.record import Stage

_BYTES_MAX = 8 << 20


class EndlessAnswerError(aiohttp.ClientError):
    """More came than an answer of its kind can have."""


async def text_of(response: aiohttp.ClientResponse) -> str:
    """The whole body as text; what is no UTF-8 is replaced.

    Raises:
        EndlessAnswerError: more than 8 MiB.

    """
    return b"".join([part async for part in parts_of(response)]).decode(errors="replace")


async def parts_of(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """The body as it comes, up to 8 MiB: an endless one must not fill the memory.

    Raises:
        EndlessAnswerError: more than that.

    """
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > _BYTES_MAX:
            raise EndlessAnswerError(f"more than {_BYTES_MAX >> 20} MiB of answer")
        yield part


INFO_PATHS = ("/server_info", "/get_server_info")
"""Where a server tells its settings: the name of today, then the older one."""

_OBJECT = TypeAdapter(dict[str, JsonValue])
_FLUSH_TIMEOUT_S = 30.0
_ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A base URL and what is asked of it."""

    base_url: str
    """Without a slash at its end."""

    async def info(self, stage: Stage, paths: tuple[str, ...] = ("/server_info",)) -> Mapping[str, JsonValue]:
        """The JSON object at the first of these paths that exists.

        Raises:
            TrialFault: no answer (unreachable), or not an object (bad_response).

        """
        for path in paths:
            status, text = await self._ask("GET", path, stage)
            if status == 404:
                continue
            if status != 200:
                break
            try:
                return _OBJECT.validate_json(text)
            except ValidationError as error:
                raise TrialFault("bad_response", f"{path}: not a JSON object", stage=stage) from error
        raise TrialFault("bad_response", f"{path}: HTTP {status}: {_short(text)}", stage=stage)

    async def flush(self, stage: Stage) -> None:
        """Empty the prefix cache; a server refuses (400) while requests run, for which this waits up to 30 s."""
        deadline = asyncio.get_running_loop().time() + _FLUSH_TIMEOUT_S
        while True:
            status, text = await self._ask("POST", "/flush_cache", stage)
            if status == 200:
                return
            if status != 400 or asyncio.get_running_loop().time() > deadline:
                raise TrialFault("bad_response", f"/flush_cache: HTTP {status}: {_short(text)}", stage=stage)
            await asyncio.sleep(0.2)

    async def probe(self, path: str, timeout_s: float) -> str | None:
        """None when the path answers 200, else why not, in a few words."""
        try:
            status, _ = await self._request("GET", path, timeout_s)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return _reason(error)
        return None if status == 200 else f"HTTP {status}"

    async def _ask(self, method: str, path: str, stage: Stage) -> tuple[int, str]:
        try:
            return await self._request(method, path, _ANSWER_TIMEOUT_S)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TrialFault("unreachable", f"{self.base_url}{path}: {_reason(error)}", stage=stage) from error

    async def _request(self, method: str, path: str, timeout_s: float) -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        # A session per question: they are rare, and none must keep a connection open through a measurement.
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, self.base_url + path) as response,
        ):
            return response.status, await text_of(response)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {error.strerror or error}"
    return str(error) or type(error).__name__


def _short(text: str) -> str:
    return " ".join(text.split())[:200] or "(empty)"
