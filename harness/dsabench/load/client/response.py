"""One answer, taken out of HTTP's framing by httptools: as it comes, or of its recorded reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import httptools

from dsabench.errors import HttpFault, printable
from dsabench.http import Read


class ResponseReader:
    """Feed it reads. Status and headers (in lower case) are known once their end came."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.is_whole = False
        """The end came that the framing tells."""
        self._pieces: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> bytes:
        """The body's part of a read.

        Raises:
            httptools.HttpParserError: it is not HTTP.
            HttpFault: the body is compressed, which was not asked for.

        """
        self._parser.feed_data(data)
        return self._taken()

    def body(self, raw: Iterable[Read]) -> Iterator[Read]:
        """The body's part of each read that has one. Where the answer stops being HTTP the body ends.

        Raises:
            HttpFault: it is compressed.

        """
        for at_s, data in raw:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError:
                if part := self._taken():
                    yield at_s, part
                return
            if part := self._taken():
                yield at_s, part

    def _taken(self) -> bytes:
        part = b"".join(self._pieces)
        self._pieces.clear()
        if part and not self.is_plain:
            shown = printable(self.headers[b"content-encoding"].decode("latin-1"), 20)
            raise HttpFault("broken", f"a compressed answer ({shown}), which was not asked for")
        return part

    @property
    def is_plain(self) -> bool:
        """Whether the body is not compressed."""
        return self.headers.get(b"content-encoding", b"identity").strip().lower() == b"identity"

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return self.headers.get(b"transfer-encoding", b"").strip().lower() == b"chunked"

    @property
    def is_framed(self) -> bool:
        """Whether the headers say where the body ends; else the connection's end is its own."""
        return not self.headers.keys().isdisjoint({b"transfer-encoding", b"content-length"})

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep it."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Keep the status; 1xx only announces the answer."""
        status = self._parser.get_status_code()
        self.status = 0 if status < 200 else status
        if not self.status:
            self.headers.clear()

    def on_body(self, data: bytes) -> None:
        """Keep a piece."""
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        """Note the end."""
        self.is_whole = bool(self.status)
