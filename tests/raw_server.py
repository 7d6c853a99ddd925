"""What the servers made for tests have in common: raw HTTP/1.1 on a real socket, and nothing left of it at the end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self


class RawServer(ABC):
    """Open with `async with`."""

    def __init__(self) -> None:
        self.connections_open = self.connections_made = 0

    @abstractmethod
    async def answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection stays open for the next one."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=4096)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections_open += 1
        self.connections_made += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._one(await reader.readuntil(b"\r\n\r\n"), reader, writer):
                    pass
        finally:
            self.connections_open -= 1
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if head.startswith(b"GET "):  # there is nothing to ask for
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        length = next(int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length"))
        return await self.answer(head, await reader.readexactly(length), writer)
