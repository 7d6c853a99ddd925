"""Where requests go, taken apart once."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from dsabench.errors import InputError

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

    def head(self, headers: Mapping[str, str]) -> bytes:
        """Request line and headers up to the value of Content-Length; `headers` win over those every request has.

        Raises:
            InputError: a header cannot be sent.

        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        names = {name.lower() for name in headers}
        own = {name: value for name, value in _OWN_HEADERS.items() if name.lower() not in names}
        lines = [f"POST {self.path} HTTP/1.1", f"Host: {host}:{self.port}"]
        for name, value in {**own, **headers}.items():
            if not name.isascii() or not name.isprintable() or ":" in name or any(c in value for c in "\r\n\0"):
                raise InputError(f"header {name!r} cannot be sent: it holds a line break or is no header name")
            lines.append(f"{name}: {value}")
        return "\r\n".join([*lines, "Content-Length: "]).encode("latin-1", "replace")
