"""Serve a site on this machine, and rebuild it when records come."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from dsabench.errors import InputError
from dsabench.results.places import find_journals

_HOST = "127.0.0.1"
_LOOK_EVERY_S = 1.0
_REFRESH_S = 5
"""After this time a browser loads a page again."""


class _Handler(SimpleHTTPRequestHandler):
    """Files of the site. A page reloads itself, and nothing is cached."""

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        if self.path.endswith(("/", ".html")):
            self.send_header("Refresh", str(_REFRESH_S))
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """A request is no news."""


def serve_site(folder: Path, port: int, places: Sequence[Path], build: Callable[[], None]) -> None:
    """Serve the folder on loopback until Ctrl-C; `build` makes the site anew when a journal below the places changes.

    Raises:
        InputError: the port is taken.

    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        server = ThreadingHTTPServer((_HOST, port), partial(_Handler, directory=str(folder)))
    except OSError as error:
        raise InputError(f"--port {port}: {error.strerror}; name another port") from error
    with server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://{_HOST}:{server.server_address[1]}/index.html"
        print(f"{address} shows {folder} and follows new records. Ctrl-C ends.", flush=True)
        try:
            _follow(places, build)
        except KeyboardInterrupt:
            print("ended", file=sys.stderr)
        finally:
            server.shutdown()
            thread.join()


def _follow(places: Sequence[Path], build: Callable[[], None]) -> None:
    seen: dict[Path, tuple[int, int]] | None = None
    while True:
        found = _journals(places)
        if found != seen:
            seen = found
            if found:
                build()
        time.sleep(_LOOK_EVERY_S)


def _journals(places: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Size and time of every journal; none where a sweep has not written its first record."""
    found: dict[Path, tuple[int, int]] = {}
    for place in places:
        try:
            found |= {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in find_journals(place)}
        except (InputError, OSError):
            continue
    return found
