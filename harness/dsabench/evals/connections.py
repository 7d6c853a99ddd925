"""Kept-alive connections to one address, as many as there are requests in flight.

llhttp (httptools) finds where an answer ends. A burst of 1,319 requests leaves in half the time that aiohttp takes; in
an eval that asks everything at once, that time stands at both ends of the wall clock.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import cast

import httptools

from dsabench.evals.client import Answer, Failure, Reply, Target, broken
from dsabench.load.client.address import Address

_IDLE_S = 2.0
"""Servers of this kind (uvicorn) close a connection after 5 idle seconds; a request sent into that moment is lost."""


@dataclass(slots=True)
class Connections:
    """Made by `open_connections`."""

    address: Address
    host: str
    """Looked up once."""
    head: bytes = field(repr=False)
    """Request line and headers up to the value of Content-Length; holds the API key."""
    tls: ssl.SSLContext | None
    idle: list[_Connection] = field(default_factory=list)
    all: set[_Connection] = field(default_factory=set)

    async def ask(self, body: bytes, timeout_s: float) -> Reply | Failure:
        """Send one request and read its answer. Never raises but for cancellation, which closes the connection."""
        request = b"%s%d\r\n\r\n%s" % (self.head, len(body), body)
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = self._kept() or await self._connect()
                return await connection.exchange(request)
        except TimeoutError:
            return Failure(f"timeout: not finished after {timeout_s:g} s", passing=True)
        except OSError as error:  # ssl's errors are among them
            return broken(str(error) or type(error).__name__)
        finally:
            if connection is not None:
                self._put_back(connection)

    def close(self) -> None:
        """Close them all."""
        for connection in self.all:
            connection.close()

    def _kept(self) -> _Connection | None:
        while self.idle:
            connection = self.idle.pop()
            if connection.usable and perf_counter() - connection.last_s < _IDLE_S:
                return connection
            self._drop(connection)
        return None

    async def _connect(self) -> _Connection:
        name = self.address.host if self.tls else None
        loop = asyncio.get_running_loop()
        made = await loop.create_connection(
            _Connection, self.host, self.address.port, ssl=self.tls, server_hostname=name
        )
        self.all.add(made[1])
        return made[1]

    def _put_back(self, connection: _Connection) -> None:
        if connection.usable and connection.running is None:
            self.idle.append(connection)
        else:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        connection.close()
        self.all.discard(connection)


@asynccontextmanager
async def open_connections(target: Target, path: str) -> AsyncIterator[Connections]:
    """Connections to one path of the target; none is made before it is needed."""
    address = Address.of(target.base_url + path)
    headers = {"Authorization": f"Bearer {target.api_key}"} if target.api_key else {}
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        host = str(found[0][4][0])
    except OSError:  # left for the connections to fail with
        host = address.host
    connections = Connections(address, host, address.head(headers), address.context())
    try:
        yield connections
    finally:
        connections.close()
        await asyncio.sleep(0)  # the transports close in the loop's next turn


class _Connection(asyncio.Protocol):
    """States: idle (`running` is None) or busy with one request."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer = Answer(0.0)
        self._framed = False
        self.running: asyncio.Future[Reply | Failure] | None = None
        self.usable = False
        self.last_s = 0.0

    async def exchange(self, request: bytes) -> Reply | Failure:
        """Send and wait for the whole answer."""
        assert self._transport is not None
        self.running = asyncio.get_running_loop().create_future()
        self._answer, self._framed = Answer(perf_counter()), False
        self._transport.write(request)
        return await self.running

    def close(self) -> None:
        """Close without lingering; a running request is given up."""
        self.usable, self.running = False, None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport, self.usable, self.last_s = cast("asyncio.Transport", transport), True, perf_counter()

    def data_received(self, data: bytes) -> None:
        """Let the parser look."""
        self.last_s = perf_counter()
        if self.running is None:  # bytes that nobody asked for
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.usable = False
            self._end(broken(f"no HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End what was running; a body without a length ends here."""
        self.usable = False
        if exc is None and self._answer.status and not self._framed:
            self._end(self._answer.finish())
        else:
            self._end(broken(str(exc) if exc else "the server closed the connection"))

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """See how the body comes and whether it says where it ends."""
        match name.lower():
            case b"content-type":
                self._answer.streams = value.lower().startswith(b"text/event-stream")
            case b"content-length" | b"transfer-encoding":
                self._framed = True

    def on_headers_complete(self) -> None:
        """Keep the status; 1xx only announces the answer."""
        status = self._parser.get_status_code()
        self._answer.status = 0 if status < 200 else status

    def on_body(self, body: bytes) -> None:
        """Take a piece."""
        self._answer.feed(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._answer.status:
            self.usable = self.usable and self._parser.should_keep_alive()
            self._end(self._answer.finish())

    def _end(self, reply: Reply | Failure) -> None:
        running, self.running = self.running, None
        if running is not None and not running.done():
            running.set_result(reply)
