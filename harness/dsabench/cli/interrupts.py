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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_ALL = (signal.SIGINT, *_ENDING)


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

    for number in _ALL:
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    return await work


def hold_interrupts() -> None:
    """Let them wait, as far as no other thread is told: at a fork an exception may be lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)


def let_interrupts_come() -> None:
    """The end of `hold_interrupts`, in each process by itself: a child inherits that they wait."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)


@contextmanager
def each_interrupt(act: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """After `end_at_any_signal`: while it is open each calls `act`, and none raises. It gives whether there was one.

    Raises:
        KeyboardInterrupt: at its end, where there was one.

    """
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        act()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted:
        raise KeyboardInterrupt


def ignore_interrupts() -> None:
    """Another Ctrl-C has nothing left to interrupt: what a hurried exit leaves, its keeper ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
