"""`python -m dsabench.reference.launch_server --model small --port 30000 …`: the first moments, in which the server is imported."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        # until there are ranks there is nothing to end, and an import may swallow an exception or show its place
        signal.signal(number, lambda *_: os._exit(0))
    from dsabench.reference.server import start  # noqa: PLC0415  (most of the time in which nothing is started yet)

    return start.main(argv)


if __name__ == "__main__":
    sys.exit(main())
