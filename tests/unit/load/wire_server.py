"""A server that writes exactly the bytes it is given, in the pieces it is given, and then does what it is told."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

Then = Literal["keep", "close", "reset", "hang", "half"]


@dataclass(frozen=True)
class Script:
    """What follows a request."""

    pieces: Sequence[bytes]
    then: Then = "keep"
    pause_s: float = 0.0


class WireServer:
    """Answers the requests with the scripts in turn, over again from the first."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self.requests: list[bytes] = []
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/generate"
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length"))
        script = self._scripts[len(self.requests) % len(self._scripts)]
        self.requests.append(head + await reader.readexactly(length))
        sock = writer.get_extra_info("socket")
        for piece in script.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(script.pause_s)
        match script.then:
            case "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            case "half":
                writer.write_eof()
                await asyncio.sleep(30.0)
            case "hang":
                await asyncio.sleep(30.0)
        return script.then == "keep"
