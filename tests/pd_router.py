"""What sglang's router does in front of prefill and decode servers, over real sockets.

A request goes to both servers with the same bootstrap fields; the decode server's stream is passed on as it comes, and
nothing is added to it. Where decode breaks off, so does the router: after its headers it has no other way to say so.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class PdRouter:
    """Open with `async with`; `rooms` are the bootstrap rooms that were given out."""

    def __init__(self, prefill_url: str, decode_url: str, bootstrap_port: int = 8998) -> None:
        self._prefill, self._decode = urlsplit(prefill_url), urlsplit(decode_url)
        self._bootstrap_port = bootstrap_port
        self.rooms: list[int] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1]
            [length] = [
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            ]
            body = json.loads(await reader.readexactly(length))
            self.rooms.append(len(self.rooms) + 1)
            body |= {
                "bootstrap_host": self._prefill.hostname,
                "bootstrap_port": self._bootstrap_port,
                "bootstrap_room": self.rooms[-1],
            }
            prefill = asyncio.create_task(_post(self._prefill.port, path, body))
            source, sink = await _send(self._decode.port, path, body)
            with suppress(ConnectionError):
                while data := await source.read(65536):
                    writer.write(data)
                    await writer.drain()
            sink.close()
            await prefill
        writer.close()


async def _send(port: int | None, path: bytes, body: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    writer.write(
        b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (path, len(data), data)
    )
    return reader, writer


async def _post(port: int | None, path: bytes, body: object) -> None:
    """Send, and read until the answer's end; a prefill server's answer is thrown away."""
    reader, writer = await _send(port, path, body)
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()
