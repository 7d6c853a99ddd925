"""The first moments of the server, in which it is imported."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        # until there are ranks there is nothing to end, and an import may swallow an exception or show its place
        signal.signal(number, lambda *_: os._exit(0))
    from dsabench.serving import launch_server  # noqa: PLC0415  (most of the time in which nothing is started yet)

    return launch_server.main(argv)
