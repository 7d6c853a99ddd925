"""A server's address, the head of a request to it, and one blocking call.

The call is for what surrounds a load test: aiohttp or http.client would cost more than all of the client's own start.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from urllib.parse import urlsplit

import httptools

from dsabench.errors import HttpFault, InputError
from dsabench.http import ANSWER_BYTES_MAX, HEADER_BYTES_MAX, HttpAnswer
from dsabench.load.client.response import ResponseReader

_OWN_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "text/event-stream",
    "Accept-Encoding": "identity",
    "Connection": "keep-alive",
}


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Of an http or https URL."""

    host: str
    port: int
    path: str
    tls: bool

    @classmethod
    def of(cls, url: str) -> HttpAddress:
        """Take a URL apart.

        Raises:
            InputError: it is no http(s) URL.

        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InputError(f"{url!r} is no URL: {error}") from error
        if parts.scheme not in {"http", "https"} or not host:
            raise InputError(f"{url!r} is no URL that requests can be posted to; write http://HOST:PORT")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        tls = parts.scheme == "https"
        return cls(host, port or (443 if tls else 80), path, tls)

    def context(self) -> ssl.SSLContext | None:
        """TLS with the system's certificates, where the URL asks for it."""
        return ssl.create_default_context() if self.tls else None

    def head(self, headers: Mapping[str, str], method: str = "POST") -> bytes:
        """Request line and headers up to the value of Content-Length; `headers` win over those every request has.

        Raises:
            InputError: a header cannot be sent.

        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        names = {name.lower() for name in headers}
        own = {name: value for name, value in _OWN_HEADERS.items() if name.lower() not in names}
        lines = [f"{method} {self.path} HTTP/1.1", f"Host: {host}:{self.port}"]
        for name, value in {**own, **headers}.items():
            if not name.isascii() or not name.isprintable() or ":" in name or any(c in value for c in "\r\n\0"):
                raise InputError(f"header {name!r} cannot be sent: it holds a line break or is no header name")
            lines.append(f"{name}: {value}")
        return "\r\n".join([*lines, "Content-Length: "]).encode("latin-1", "replace")


def ask_once(
    url: str,
    method: str = "GET",
    body: bytes = b"",
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
) -> HttpAnswer:
    """Send one request on a connection of its own and wait for the whole answer. Any status is an answer.

    Raises:
        HttpFault: no whole answer, as `http.HttpClient` has it.
        InputError: the URL or a header cannot be sent.

    """
    address = HttpAddress.of(url)
    request = b"%s%d\r\n\r\n%s" % (address.head({"Connection": "close", **(headers or {})}, method), len(body), body)
    reader, body_so_far, end_s = ResponseReader(), bytearray(), perf_counter() + timeout_s
    sent = False
    try:
        with (
            socket.create_connection((address.host, address.port), timeout_s) as plain,
            _secured(plain, address) as sock,
        ):
            sock.sendall(request)
            sent, received = True, 0
            while not reader.is_whole:
                sock.settimeout(_left_s(end_s))
                data = sock.recv(1 << 16)
                if not data:
                    _check_end(reader, len(body_so_far))
                    break
                body_so_far += reader.feed(data)
                received += len(data)
                if not reader.status and received > HEADER_BYTES_MAX:
                    raise HttpFault("too_large", f"headers of more than {HEADER_BYTES_MAX >> 10} KiB")
                if len(body_so_far) > ANSWER_BYTES_MAX:
                    raise HttpFault("too_large", f"more than {ANSWER_BYTES_MAX >> 20} MiB of answer")
    except TimeoutError as error:
        raise HttpFault("timeout", f"no whole answer within {timeout_s:g} s") from error
    except httptools.HttpParserError as error:
        raise HttpFault("broken", f"no HTTP: {error}") from error
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        if sent:
            raise HttpFault("broken", f"cut off: {why}") from error
        raise HttpFault("refused", f"cannot connect to {address.host}:{address.port}: {why}") from error
    return HttpAnswer(reader.status, bytes(body_so_far))


def _check_end(reader: ResponseReader, received: int) -> None:
    """Refuse the connection's end where it is not that of the answer."""
    if not reader.status:
        raise HttpFault("broken", "cut off: the server closed the connection")
    if reader.is_framed:
        raise HttpFault("broken", f"cut off after {received} bytes")


def _left_s(end_s: float) -> float:
    left_s = end_s - perf_counter()
    if left_s <= 0:
        raise TimeoutError
    return left_s


@contextmanager
def _secured(plain: socket.socket, address: HttpAddress) -> Iterator[socket.socket]:
    context = address.context()
    if context is None:
        yield plain
        return
    with context.wrap_socket(plain, server_hostname=address.host) as sock:
        yield sock
