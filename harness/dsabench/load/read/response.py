"""One recorded answer, taken out of HTTP's framing by httptools, a read at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import httptools

from dsabench.errors import HttpFault, printable
from dsabench.http import Read


class ResponseReader:
    """Give it an answer's reads with `body`. Status and headers (in lower case) are known once their end came."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def body(self, raw: Iterable[Read]) -> Iterator[Read]:
        """The body's part of each read that has one. Where the answer stops being HTTP the body ends.

        Raises:
            HttpFault: it is compressed, which was not asked for.

        """
        for at_s, data in raw:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError:
                data = b""  # noqa: PLW2901  (the end)
            if self._pieces:
                if not self.is_plain:
                    shown = printable(self.headers[b"content-encoding"].decode("latin-1"), 20)
                    raise HttpFault("broken", f"a compressed answer ({shown}), which was not asked for")
                yield at_s, b"".join(self._pieces)
                self._pieces.clear()
            if not data:
                return

    @property
    def is_plain(self) -> bool:
        """Whether the body is not compressed."""
        return self.headers.get(b"content-encoding", b"identity").strip().lower() == b"identity"

    @property
    def is_chunked(self) -> bool:
        """Whether the body came in chunks."""
        return self.headers.get(b"transfer-encoding", b"").strip().lower() == b"chunked"

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep it."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Keep the status; 1xx only announces the answer."""
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self.headers.clear()

    def on_body(self, data: bytes) -> None:
        """Keep a piece."""
        self._pieces.append(data)
