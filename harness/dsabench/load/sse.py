"""The one reader of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html §9.2.6).

Works on bytes with their arrival times, cut anywhere: in a line, between CR and LF, inside a character.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

Read = tuple[float, bytes]
"""(when the bytes arrived, the bytes). A plain tuple: one is made per read while the clock runs."""

DONE = b"[DONE]"
_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event; `at_s` is the time of the read that completed it."""

    at_s: float
    data: bytes
    whole: bool = True
    """False for the last event of a stream that ended before the event's blank line."""


class SseReader:
    """Incremental: feed it reads in order, then close it."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []  # pieces of the unfinished line
        self._data: list[bytes] = []  # data lines of the unfinished event
        self._after_cr = False
        self._first_line = True
        self._at_s = 0.0

    def feed(self, at_s: float, chunk: bytes) -> Iterator[SseEvent]:
        """Events that this read completes. Exhaust the iterator before the next call."""
        self._at_s = at_s
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in chunk:  # pieces are joined once, so a large frame in small reads costs no quadratic copying
            self._tail.append(chunk)
            return
        lines = (b"".join((*self._tail, chunk)) if self._tail else chunk).split(b"\n")
        tail = lines.pop()
        self._tail = [tail] if tail else []
        for line in lines:
            yield from self._line(at_s, line)

    def close(self) -> Iterator[SseEvent]:
        """The event that the stream ended in, if any.

        The specification drops it; servers exist that end with `data: [DONE]` and no blank line, and a cut frame must
        be seen to be reported.
        """
        if self._tail:
            yield from self._line(self._at_s, b"".join(self._tail))
            self._tail = []
        for event in self._line(self._at_s, b""):
            yield event._replace(whole=False)

    def _line(self, at_s: float, line: bytes) -> Iterator[SseEvent]:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                yield SseEvent(at_s, b"\n".join(self._data))
                self._data = []
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line == b"data":
            self._data.append(b"")
        # comments (keep-alives) and the fields event, id and retry carry nothing that is measured


def events(reads: Iterable[Read]) -> Iterator[SseEvent]:
    """All events of a recorded stream."""
    reader = SseReader()
    for at_s, chunk in reads:
        yield from reader.feed(at_s, chunk)
    yield from reader.close()
