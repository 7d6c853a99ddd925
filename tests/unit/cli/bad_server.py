"""A socket that answers what no HTTP server would, to whoever asks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def bad_server(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Its address. `answer` is called with each connection once something was asked, and may write until that is gone."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=one, args=listening.accept()[:1], daemon=True).start()

    def one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
