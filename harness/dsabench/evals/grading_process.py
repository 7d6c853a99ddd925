"""A process for a scorer that is slow: there its own signals work, and nothing waits for it.

It ends with whoever started it, however that one ends, and leaves Ctrl-C and other ways of ending to that one.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from threading import Thread

from dsabench.errors import TrialFault
from dsabench.evals.graders import Grade, Scorer

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


Grading = Callable[[str, str], Awaitable[Grade]]
"""Completion, expected → grade."""


@contextmanager
def graded_apart(scorer: Scorer) -> Iterator[Grading]:
    """What the scorer says, there. Raises TrialFault where the process was killed."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent) as pool:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # the process inherits that they wait
        try:
            pool.submit(int)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

        async def grade(completion: str, expected: str) -> Grade:
            try:
                return await asyncio.get_running_loop().run_in_executor(pool, scorer, completion, expected)
            except BrokenProcessPool as error:
                raise TrialFault("internal", "the process that grades answers was killed", stage="load") from error

        yield grade


def _end_with_parent() -> None:
    """A worker waits for work at a pipe that it holds open itself, so it would never hear that its parent is gone."""
    parent = parent_process()
    assert parent is not None, "it was spawned"

    def end() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    Thread(target=end, daemon=True).start()
