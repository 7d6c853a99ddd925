"""The one HTTP client for control traffic: JSON calls, event streams and downloads, each with a deadline and a size limit.

The reader of events is also that of recorded answers. aiohttp is imported where it is used, because a load test reads
events without it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from dsabench.errors import HttpFault, StoreError, one_line, printable

if TYPE_CHECKING:
    from pathlib import Path

    import aiohttp

HEADER_BYTES_MAX = 64 << 10
"""Of the headers of an answer. Parsers join a header piece by piece, so that an endless one would outlive timeouts."""
EVENT_BYTES_MAX = 16 << 20
"""Of one event of a stream, and so of a line."""
ANSWER_BYTES_MAX = 8 << 20
_CONNECT_TIMEOUT_S = 5.0
_IDLE_S = 2.0
"""uvicorn closes a connection after 5 idle seconds; a request that is sent into that moment is lost."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The body; what is no UTF-8 is replaced."""
        return self.body.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class HttpStream:
    """An answer that is read as it comes. Reading raises `HttpFault`."""

    client: HttpClient
    response: aiohttp.ClientResponse

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.response.status

    @property
    def is_events(self) -> bool:
        """Whether the server streams. One that does not gives its whole answer as one body."""
        return self.response.content_type == "text/event-stream"

    async def parts(self) -> AsyncIterator[bytes]:
        """The body, cut anywhere."""
        size = 0
        with self.client.faults():
            async for part in self.response.content.iter_any():
                size += len(part)
                if size > self.client.bytes_max:
                    raise HttpFault("too_large", f"more than {_mib(self.client.bytes_max)} of answer")
                yield part

    async def read(self) -> HttpAnswer:
        """The whole answer."""
        return HttpAnswer(self.status, b"".join([part async for part in self.parts()]))

    async def events(self) -> AsyncIterator[bytes]:
        """The data of each event. An event that the connection's end cut short is dropped."""
        reader = SseReader()
        async for part in self.parts():
            for event in reader.feed(0.0, part):
                yield event.data
        for event in reader.close():
            if event.whole or event.data == DONE:
                yield event.data


@dataclass(frozen=True, slots=True)
class HttpClient:
    """A server's address and how long and how much it may answer.

    Compressed answers are refused: none is asked for. Redirects are not followed, but for a public address.
    """

    base_url: str
    """Without a slash at its end."""
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    """For the whole of a call."""
    idle_timeout_s: float | None = None
    """For the next bytes of an answer."""
    bytes_max: int = ANSWER_BYTES_MAX
    """Of a body."""
    is_public: bool = False
    """An address out in the net: redirects are followed, and the environment's proxies used."""
    session: aiohttp.ClientSession | None = field(default=None, repr=False)
    """None opens a connection for each call: none must stay open through a measurement."""

    async def get(self, path: str) -> HttpAnswer:
        """GET. Any status is an answer.

        Raises:
            HttpFault: no whole answer.

        """
        async with self.stream("GET", path) as answer:
            return await answer.read()

    async def post(self, path: str, body: Mapping[str, Any] | bytes | None = None) -> HttpAnswer:
        """POST of JSON; see `get`."""
        async with self.stream("POST", path, body) as answer:
            return await answer.read()

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: Mapping[str, Any] | bytes | None = None
    ) -> AsyncIterator[HttpStream]:
        """An answer to be read as it comes. Leaving the context before its end closes the connection.

        Raises:
            HttpFault: no answer began; `HttpStream` raises it for one that does not end well.

        """
        content = body if isinstance(body, bytes | None) else orjson.dumps(body)
        headers = {} if content is None else {"Content-Type": "application/json"}
        async with AsyncExitStack() as stack:
            with self.faults():
                session = (
                    self.session if self.session is not None else await stack.enter_async_context(self._open_session())
                )
                response = await stack.enter_async_context(
                    session.request(
                        method, self.base_url + path, data=content, headers=headers,
                        timeout=self._timeout(), allow_redirects=self.is_public,
                    )
                )  # fmt: skip
                _check_headers(response)
            yield HttpStream(self, response)

    @asynccontextmanager
    async def keep_connections(self) -> AsyncIterator[HttpClient]:
        """This client with connections that are used again, as many as there are calls at a time."""
        async with self._open_session(keep=True) as session:
            yield replace(self, session=session)

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Make an `HttpFault` of what aiohttp raises."""
        import aiohttp  # noqa: PLC0415

        try:
            yield
        except aiohttp.ConnectionTimeoutError as error:
            raise HttpFault("timeout", f"no connection within {_CONNECT_TIMEOUT_S:g} s") from error
        except aiohttp.SocketTimeoutError as error:
            raise HttpFault("timeout", f"nothing came for {self.idle_timeout_s:g} s") from error
        except TimeoutError as error:
            raise HttpFault("timeout", f"no whole answer within {self.timeout_s:g} s") from error
        except aiohttp.ClientConnectorError as error:
            code = error.os_error.errno
            why = os.strerror(code) if code is not None and code > 0 else error.os_error.strerror
            raise HttpFault("refused", f"cannot connect to {error.host}:{error.port}: {why}") from error
        except aiohttp.ClientPayloadError as error:
            why = getattr(error.__cause__, "message", "")
            raise HttpFault("broken", f"cut off{': ' if why else ''}{one_line(why)}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: an address that is none
            raise HttpFault("broken", one_line(str(error)) or type(error).__name__) from error

    def _open_session(self, *, keep: bool = False) -> aiohttp.ClientSession:
        import aiohttp  # noqa: PLC0415

        connector = (
            aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S)
            if keep
            else aiohttp.TCPConnector(force_close=True)
        )  # fmt: skip
        headers = {"Accept-Encoding": "identity"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return aiohttp.ClientSession(
            connector=connector, headers=headers, auto_decompress=False, trust_env=self.is_public
        )

    def _timeout(self) -> aiohttp.ClientTimeout:
        import aiohttp  # noqa: PLC0415

        return aiohttp.ClientTimeout(
            total=self.timeout_s, sock_connect=_CONNECT_TIMEOUT_S, sock_read=self.idle_timeout_s
        )


def _check_headers(response: aiohttp.ClientResponse) -> None:
    size = sum(len(name) + len(value) + 4 for name, value in response.raw_headers)
    if size > HEADER_BYTES_MAX:
        raise HttpFault("too_large", f"headers of more than {HEADER_BYTES_MAX >> 10} KiB")
    coding = response.headers.get("Content-Encoding", "identity")
    if coding != "identity":
        raise HttpFault("broken", f"a compressed answer ({printable(coding, 20)}), which was not asked for")


def _mib(size: int) -> str:
    return f"{size / (1 << 20):g} MiB"


async def download(
    url: str, file: Path, *, sha256: str | None = None, note: Path | None = None, timeout_s: float = 600.0,
    bytes_max: int = 1 << 30,
) -> None:  # fmt: skip
    """Write the whole of what is at an address to `file`, or nothing.

    Args:
        url: redirects are followed, and the environment's proxies used.
        file: its folder is made.
        sha256: what it must be.
        note: where the checksum is written, before `file` has its name: no unchecked copy is ever there.
        timeout_s: for all of it.
        bytes_max: of all of it.

    Raises:
        HttpFault: not there, not all of it, or another checksum.
        StoreError: it cannot be written.

    """
    import hashlib  # noqa: PLC0415

    client = HttpClient(url, timeout_s=timeout_s, bytes_max=bytes_max, is_public=True)
    part, found = file.with_name(f"{file.name}.{os.getpid()}.part"), hashlib.sha256()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as written:
            async with client.stream("GET", "") as answer:
                if answer.status != 200:
                    raise HttpFault("status", f"HTTP {answer.status}")
                async for piece in answer.parts():
                    found.update(piece)
                    await asyncio.to_thread(written.write, piece)
        if sha256 not in (None, found.hexdigest()):
            raise HttpFault("changed", f"its checksum is {found.hexdigest()[:16]}…, expected {sha256:.16}…")
        if note is not None:
            note.write_text(found.hexdigest() + "\n")
        part.replace(file)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror or error}") from error
    finally:
        with suppress(NotADirectoryError):
            part.unlink(missing_ok=True)


async def accepts_connections(base_url: str) -> bool:
    """Whether something listens there. Nothing is asked: a health request may generate a token."""
    parts = urlsplit(base_url)
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(
                parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
            )
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


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
    """Incremental: feed it reads in order, then close it. Both raise `HttpFault` for an event of more than 16 MiB."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []  # pieces of the unfinished line
        self._data: list[bytes] = []  # data lines of the unfinished event
        self._tail_bytes = self._data_bytes = 0
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
            self._tail_bytes += len(chunk)
            self._check_size()
            return
        lines = (b"".join((*self._tail, chunk)) if self._tail else chunk).split(b"\n")
        tail = lines.pop()
        self._tail, self._tail_bytes = ([tail] if tail else []), len(tail)
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
                self._data, self._data_bytes = [], 0
        elif line.startswith(b"data:") or line == b"data":
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            self._data_bytes += len(line) + 1
            self._check_size()
        # comments (keep-alives) and the fields event, id and retry carry nothing that is measured

    def _check_size(self) -> None:
        if self._tail_bytes + self._data_bytes > EVENT_BYTES_MAX:
            raise HttpFault("too_large", f"an event of more than {_mib(EVENT_BYTES_MAX)}")


def events(reads: Iterable[Read]) -> Iterator[SseEvent]:
    """All events of a recorded stream."""
    reader = SseReader()
    for at_s, chunk in reads:
        yield from reader.feed(at_s, chunk)
    yield from reader.close()
