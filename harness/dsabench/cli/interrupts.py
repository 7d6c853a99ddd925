"""Ctrl-C, TERM and HUP: work ends in order at the first, and a process that is asked again does not linger.

A polite TERM (a scheduler, `kill`) or HUP (a closed terminal) is a Ctrl-C that nobody typed. A job that a shell starts in
the background inherits SIGINT as ignored, so each of these sets it anew.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Coroutine

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def end_at_any_signal() -> None:
    """TERM and HUP become the KeyboardInterrupt of a Ctrl-C: for work that `asyncio.run` drives."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in _ENDING:
        signal.signal(number, lambda *_: os.kill(os.getpid(), signal.SIGINT))


async def cancel_at_first_signal(work: Coroutine[object, object, int], farewell: str) -> int:
    """End the work in order at the first Ctrl-C, TERM or HUP, and the process, with its farewell, at the second.

    For work that loses nothing by leaving at once. What comes of the first is asyncio's CancelledError.
    """
    task = asyncio.current_task()
    assert task is not None
    interrupts = itertools.count()

    def interrupt() -> None:
        if next(interrupts) == 0:
            task.cancel()
            return
        print(farewell, file=sys.stderr, flush=True)
        os._exit(130)

    for number in (signal.SIGINT, *_ENDING):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    return await work


def ignore_interrupts() -> None:
    """Another Ctrl-C has nothing left to interrupt: what a hurried exit leaves, its keeper ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
