"""A process for a scorer that is slow: there its own signals work, and nothing waits for it.

It ends with whoever started it, however that one ends, and leaves Ctrl-C and other ways of ending to that one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from threading import Thread

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def grader() -> Iterator[ProcessPoolExecutor]:
    """The process, which has begun to start."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent) as pool:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # the process inherits that they wait
        try:
            pool.submit(int)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield pool


def _end_with_parent() -> None:
    """A worker waits for work at a pipe that it holds open itself, so it would never hear that its parent is gone."""
    parent = parent_process()
    assert parent is not None, "it was spawned"

    def end() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    Thread(target=end, daemon=True).start()
