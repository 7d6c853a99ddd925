"""One recorded answer, taken out of HTTP's framing: httptools for the framing, zlib for what is compressed."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import httptools

_WINDOW_BITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 47}


@dataclass(frozen=True, slots=True)
class DecodedResponse:
    """Status, headers in lower case, and the body's pieces with the time of the read that brought them."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: tuple[tuple[float, bytes], ...]
    error: str | None = None
    """Set where the body could not be decompressed: `garbage: …`."""

    def header(self, name: bytes) -> bytes:
        """Value of the last header of this name, in lower case; empty if there is none."""
        return dict(self.headers).get(name, b"").strip().lower()

    @property
    def coded(self) -> bool:
        """Whether the body came compressed."""
        return self.header(b"content-encoding") not in {b"", b"identity"}

    @property
    def chunked(self) -> bool:
        """Whether the body came in chunks."""
        return self.header(b"transfer-encoding") == b"chunked"


class _HttpPieces:
    """httptools' callbacks."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0

    def feed(self, data: bytes) -> bool:
        """Whether it stopped being HTTP."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            return True
        return False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()
        if self.status < 200:
            self.headers.clear()

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)


def decode(raw: Iterable[tuple[float, bytes]]) -> DecodedResponse:
    """Take one answer apart. Where it stops being HTTP the body ends; what came before is kept."""
    seen = _HttpPieces()
    body: list[tuple[float, bytes]] = []
    for at_s, data in raw:
        broken = seen.feed(data)
        if seen.pieces:
            body.append((at_s, b"".join(seen.pieces)))
            seen.pieces.clear()
        if broken:
            break
    coding = dict(seen.headers).get(b"content-encoding", b"identity").strip().lower()
    if coding in _WINDOW_BITS:
        body, error = _inflated(body, _WINDOW_BITS[coding])
        return DecodedResponse(seen.status, tuple(seen.headers), tuple(body), error)
    return DecodedResponse(seen.status, tuple(seen.headers), tuple(body))


def _inflated(body: list[tuple[float, bytes]], window_bits: int) -> tuple[list[tuple[float, bytes]], str | None]:
    stream = zlib.decompressobj(window_bits)
    plain: list[tuple[float, bytes]] = []
    for at_s, data in body:
        try:
            piece = stream.decompress(data)
        except zlib.error as error:
            return plain, f"garbage: the body cannot be decompressed: {error}"
        if piece:
            plain.append((at_s, piece))
    return plain, None
