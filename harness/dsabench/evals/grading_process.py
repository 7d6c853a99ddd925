"""A process for graders that are slow: there their own signals work, and nothing waits for them.

It ends with whoever started it, however that one ends, and leaves Ctrl-C and other ways of ending to that one.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from threading import Thread
from typing import Protocol

from dsabench.errors import TrialFault
from dsabench.evals.careful import SLOW, Grades, grade, is_quick
from dsabench.evals.graders import Grade
from dsabench.model.evals import ScorerName

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Grading(Protocol):
    """`careful.grade`, awaited."""

    async def __call__(self, name: ScorerName, completion: str, expected: str, told: Grade | None = None, /) -> Grades:
        """Raises TrialFault where the process that grades was killed."""


@contextmanager
def grading(name: ScorerName) -> Iterator[Grading]:
    """The graders of an eval; slow ones in a process of their own."""
    if name in SLOW:
        with _graded_apart() as apart:
            yield apart
        return

    async def at_once(name: ScorerName, completion: str, expected: str, told: Grade | None = None, /) -> Grades:
        return grade(name, completion, expected, told)

    yield at_once


@contextmanager
def _graded_apart() -> Iterator[Grading]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent) as pool:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # the process inherits that they wait
        try:
            pool.submit(int)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

        async def apart(name: ScorerName, completion: str, expected: str, told: Grade | None = None, /) -> Grades:
            if is_quick(name, completion):
                return grade(name, completion, expected, told)
            try:
                return await asyncio.get_running_loop().run_in_executor(pool, grade, name, completion, expected, told)
            except BrokenProcessPool as error:
                raise TrialFault("internal", "the process that grades answers was killed", stage="load") from error

        yield apart


def _end_with_parent() -> None:
    """A worker waits for work at a pipe that it holds open itself, so it would never hear that its parent is gone."""
    parent = parent_process()
    assert parent is not None, "it was spawned"

    def end() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    Thread(target=end, daemon=True).start()
