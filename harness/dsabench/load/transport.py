"""Sends a request and keeps what comes back, with the time at which it came. No parsing here.

Errors become strings that start with their class:

- `connect: …` no connection
- `http 503: …` another status than 200, with the start of the body
- `reset: …` the connection broke before the headers
- `cut: …` the connection broke in the body
- `timeout: …` not finished within the time allowed
- `protocol: …` the answer is no valid HTTP
"""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import aiohttp

from dsabench.load.sse import Read

# Servers of this kind (uvicorn) close a connection after 5 idle seconds; a request sent into that moment is lost.
_KEEPALIVE_S = 2.0
# Above it the client stops reading until it has caught up; only a frame of a very long answer comes near.
_READ_BUFFER_BYTES = 1 << 20
# From here on aiohttp wants a file, which it writes in pieces, instead of bytes, and warns.
_LARGE_BODY_BYTES = 1 << 20
_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request on the wire. Times are of `perf_counter`."""

    sent_s: float
    """Just before its first bytes were written to an open connection; of one never written, when it was tried."""
    done_s: float
    """When the last bytes came, or when it failed."""
    reads: tuple[Read, ...]
    error: str | None = None


@dataclass(slots=True)
class _Written:
    """When a request was written. Mutable: the connection fills it in."""

    at_s: float
    seen: bool = False


def _write_stamps() -> aiohttp.TraceConfig:
    """Stamp each request as its first bytes go out.

    Between `post()` and the write lie the connection's set-up and a turn of the event loop: in a burst of 200 requests
    up to 40 ms, which would be counted as the server's.
    """

    async def stamp(_session: aiohttp.ClientSession, context: Any, _chunk: object) -> None:
        written = context.trace_request_ctx
        if not written.seen:
            written.at_s, written.seen = perf_counter(), True

    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(stamp)
    return trace


class Transport:
    """Posts to one address over kept-alive connections; as many as there are requests in flight."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url, self._timeout_s = url, timeout_s

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_READ_BUFFER_BYTES,
            headers=_HEADERS,
            trace_configs=[_write_stamps()],
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def post(self, body: bytes) -> Exchange:
        """Send, and read to the end. Never raises but for cancellation, which closes the connection."""
        reads: list[Read] = []
        written = _Written(perf_counter())
        error = await self._exchange(body, written, reads)
        done_s = reads[-1][0] if reads and error is None else perf_counter()
        return Exchange(written.at_s, done_s, tuple(reads), error)

    async def _exchange(self, body: bytes, written: _Written, reads: list[Read]) -> str | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._read_all(body, written, reads)
        except TimeoutError:
            return f"timeout: not finished after {self._timeout_s:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return f"{_class_of(error, in_body=bool(reads))}: {_one_line(str(error))}"

    async def _read_all(self, body: bytes, written: _Written, reads: list[Read]) -> str | None:
        data = body if len(body) < _LARGE_BODY_BYTES else io.BytesIO(body)
        async with self._session.post(self._url, data=data, trace_request_ctx=written) as response:
            if response.status != 200:
                return f"http {response.status}: {_one_line(await response.text(errors='replace'))}"
            readany = response.content.readany
            while chunk := await readany():
                reads.append((perf_counter(), chunk))
        return None


def _class_of(error: Exception, *, in_body: bool) -> str:
    match error:
        case aiohttp.ClientConnectorError():
            return "connect"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | OSError():
            return "cut" if in_body else "reset"  # aiohttp raises the same class in both places
        case aiohttp.ClientPayloadError():
            return "cut"
    return "protocol"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
