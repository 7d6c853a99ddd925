"""One kept-alive connection: sends a request, stamps and spools what comes back, sees where the answer ends.

The end is found by llhttp (httptools), which skips over bodies: 0.1 µs a read. Nothing is decoded here.
"""

from __future__ import annotations

import asyncio
import os
import sys
from time import perf_counter_ns
from typing import Protocol, cast

import httptools

from dsabench.errors import one_line
from dsabench.http import HEADER_BYTES_MAX
from dsabench.load.client.spool import Spool

_IDLE_NS = 2_000_000_000
"""Servers of this kind (uvicorn) close a connection after 5 idle seconds; a request sent into that moment is lost."""


class ConnectionOwner(Protocol):
    """Who is told what became of a request."""

    def ended(self, connection: StreamConnection, index: int, done_ns: int, error: str | None) -> None:
        """Tell that the answer ended well (`error` is None) or not."""

    def lost(self, connection: StreamConnection) -> None:
        """Tell that the connection is gone. Comes after `ended`, if a request was running."""


class StreamConnection(asyncio.BufferedProtocol):
    """States: idle (`index` is None) or busy with one request."""

    __slots__ = (
        "_complete",
        "_feed",
        "_framed",
        "_head_bytes",
        "_key",
        "_left",
        "_limit",
        "_owner",
        "_parser",
        "_sock_fd",
        "_spool",
        "_transport",
        "_used",
        "answer",
        "index",
        "last_ns",
        "sent_ns",
        "status",
        "usable",
    )  # fmt: skip

    def __init__(
        self, owner: ConnectionOwner, spool: Spool, answer_bytes: int | None = None, *, keeps_answer: bool = False
    ) -> None:
        self._owner, self._spool = owner, spool
        self._limit = sys.maxsize if answer_bytes is None else answer_bytes
        self._left = self._head_bytes = 0
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data
        self._transport: asyncio.Transport | None = None
        self._sock_fd: int | None = None
        self._key = 0
        self._complete = self._framed = self._used = False
        self.index: int | None = None
        self.sent_ns = self.last_ns = 0
        self.status = 0
        """Of the answer that is running; 0 before its headers."""
        self.usable = False
        """Open, and the server has not said that it will close."""
        self.answer = bytearray() if keeps_answer else None
        """The bytes of the running answer so far, where they are kept."""

    # the request

    def may_send(self, now_ns: int) -> bool:
        """Whether a request may be sent on this idle connection."""
        return self.usable and not (self._used and now_ns - self.last_ns > _IDLE_NS)

    def send(self, index: int, request: bytes | memoryview) -> int:
        """Send; returns when its first bytes left (`perf_counter_ns`).

        Written past the transport, which would hold it back to the end of the loop's turn: in a burst of a thousand
        requests that is milliseconds, which would be counted as the server's.
        """
        transport = self._transport
        assert transport is not None
        self.index, self._key, self.status = index, index << 32, 0
        self._complete = self._framed = False
        self._left, self._head_bytes = self._limit, 0
        if self.answer is not None:
            self.answer.clear()
        self.sent_ns = self.last_ns = perf_counter_ns()
        if self._sock_fd is None:
            transport.write(bytes(request))
            return self.sent_ns
        try:
            wrote = os.write(self._sock_fd, request)
        except BlockingIOError:
            wrote = 0
        except OSError as error:
            asyncio.get_running_loop().call_soon(self._closed, error)
            return self.sent_ns
        if wrote < len(request):
            transport.write(memoryview(request)[wrote:])
        return self.sent_ns

    def fail(self, error: str) -> None:
        """Give the running request up and close."""
        self._end(perf_counter_ns(), error)
        self.close()

    def close(self) -> None:
        """Close without lingering."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def fileno(self) -> int | None:
        """Its socket, where it is one without TLS."""
        return self._sock_fd

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("sslcontext") is None:
            self._sock_fd = transport.get_extra_info("socket").fileno()
        self.last_ns, self.usable = perf_counter_ns(), True

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Offer the arena itself: a read copies nothing."""
        spool = self._spool
        if spool.end > spool.high:
            spool.flush()
        return spool.view[spool.end :]

    def buffer_updated(self, size: int) -> None:
        """Stamp, note, and look for the end."""
        self.last_ns = now_ns = perf_counter_ns()
        spool = self._spool
        start = spool.end
        if self.index is None:  # bytes that nobody asked for
            self.close()
            return
        spool.note(now_ns)
        spool.note(self._key + size)
        spool.end = end = start + size
        if self.answer is not None:
            self.answer += spool.view[start:end]
        try:
            self._feed(spool.view[start:end])
        except httptools.HttpParserError as error:
            self.fail(f"protocol: {one_line(str(error))}")
            return
        self._left -= size
        if self._complete:
            self._end(now_ns, None)
        elif self._left < 0:
            self.fail(f"garbage: an answer of more than {self._limit / (1 << 20):.3g} MiB")
        elif not self.status:
            self._head_bytes += size
            if self._head_bytes > HEADER_BYTES_MAX:
                self.fail(f"garbage: headers of more than {HEADER_BYTES_MAX >> 10} KiB")

    def eof_received(self) -> bool:
        """Let the transport close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End what was running."""
        self.usable, self._sock_fd = False, None
        self._closed(exc)
        self._owner.lost(self)

    # httptools

    def on_header(self, name: bytes, _value: bytes) -> None:
        """See whether the body says where it ends."""
        if name.lower() in {b"transfer-encoding", b"content-length"}:
            self._framed = True

    def on_headers_complete(self) -> None:
        """Keep the status."""
        self.status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        """Note the end; 1xx only announces the answer."""
        if self.status < 200:
            self.status = 0
            return
        self._complete = True
        if not self._parser.should_keep_alive():
            self.usable = False

    # ends

    def _closed(self, exc: Exception | None) -> None:
        if self.index is None:
            return
        if exc is None and self.status and not self._framed:
            self._end(self.last_ns, None)  # its end is the connection's
            return
        kind = "cut" if self.status else "reset"
        self._end(perf_counter_ns(), f"{kind}: {one_line(str(exc)) if exc else 'the server closed the connection'}")

    def _end(self, now_ns: int, error: str | None) -> None:
        index, self.index = self.index, None
        if index is not None:
            self._used = True
            if error is not None:
                self.usable = False
            self._owner.ended(self, index, now_ns, error)
            if not self.usable and self._transport is not None:
                self._transport.abort()
