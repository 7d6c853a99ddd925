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
from typing import Self

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
    """Just before it was handed to the connection; a new connection is opened after it."""
    done_s: float
    """When the last bytes came, or when it failed."""
    reads: tuple[Read, ...]
    error: str | None = None


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
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def post(self, body: bytes) -> Exchange:
        """Send, and read to the end. Never raises but for cancellation, which closes the connection."""
        reads: list[Read] = []
        sent_s = perf_counter()
        error = await self._exchange(body, reads)
        done_s = reads[-1][0] if reads and error is None else perf_counter()
        return Exchange(sent_s, done_s, tuple(reads), error)

    async def _exchange(self, body: bytes, reads: list[Read]) -> str | None:
        data = body if len(body) < _LARGE_BODY_BYTES else io.BytesIO(body)
        try:
            async with asyncio.timeout(self._timeout_s), self._session.post(self._url, data=data) as response:
                if response.status != 200:
                    return f"http {response.status}: {' '.join((await response.text(errors='replace')).split())[:200]}"
                readany = response.content.readany
                while chunk := await readany():
                    reads.append((perf_counter(), chunk))
        except TimeoutError:
            return f"timeout: not finished after {self._timeout_s:g} s"
        except aiohttp.ClientConnectorError as error:
            return f"connect: {error.os_error.strerror or error.os_error}"
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            # aiohttp raises the same class for a connection that breaks in the body
            return f"{'cut' if reads else 'reset'}: {error}"
        except aiohttp.ClientPayloadError as error:
            return f"cut: {error}"
        except aiohttp.ClientError as error:
            return f"protocol: {error}"
        return None
