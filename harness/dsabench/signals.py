"""Ctrl-C, TERM and HUP: the first stops the work in order, later ones stop it at once."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_ALL = (signal.SIGINT, *_ENDING)
_STUCK_S = 1.0
"""A loop that turns hears within milliseconds."""


T = TypeVar("T")


def run_loop(work: Coroutine[object, object, T]) -> T:
    """As `asyncio.run`, but no Ctrl-C raises while the loop turns.

    asyncio's own second one raises between any two steps of the loop, which can lose the wake-up of a task: what waits for
    that task to end, as the closing of the loop does, then waits for ever. Here the first cancels the work, and each later
    one all that is still under way.

    Raises:
        KeyboardInterrupt: there was one, and the work has ended.

    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, or somebody else's
        return asyncio.run(work)
    runner = asyncio.Runner()
    loop = runner.get_loop()
    task = loop.create_task(work)
    interrupts = _InterruptHandler(loop, task)
    signal.signal(signal.SIGINT, interrupts)
    try:
        with runner:
            result = loop.run_until_complete(task)
    except asyncio.CancelledError:
        if not interrupts.count:
            raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if interrupts.count:
        raise KeyboardInterrupt
    return result


class _InterruptHandler:
    """The handler of Ctrl-C while a loop runs. It raises only where the loop does not turn, or takes its time to close."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: asyncio.Task[T]) -> None:
        self.count = 0
        self._loop, self._work = loop, work
        self._left: set[asyncio.Task[object]] = set()
        """Under way when the work had ended. What closes the loop is not among them, and cannot be cancelled."""
        self._waits_since_s: float | None = None
        work.add_done_callback(self._close)

    def __call__(self, *_: object) -> None:
        now_s = time.monotonic()
        if self._loop.is_closed() or (self._waits_since_s is not None and now_s - self._waits_since_s > _STUCK_S):
            raise KeyboardInterrupt
        self.count += 1
        if self.count == 1:
            self._work.cancel()
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        if not self._work.done():
            self._waits_since_s = None
        if self.count > 1:
            for task in self._left if self._work.done() else asyncio.all_tasks(self._loop):
                task.cancel()

    def _close(self, _: object) -> None:
        self._left = asyncio.all_tasks(self._loop)
        self._waits_since_s = time.monotonic()


def stop_at_any_signal() -> None:
    """TERM and HUP become the KeyboardInterrupt of a Ctrl-C: for work that `run_loop` drives."""
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
        sys.stderr.write(f"{farewell}\n")
        sys.stderr.flush()
        os._exit(130)

    for number in _ALL:
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    return await work


def hold_interrupts() -> None:
    """Let them wait, as far as no other thread is told: at a fork an exception may be lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)


def release_interrupts() -> None:
    """The end of `hold_interrupts`, in each process by itself: a child inherits that they wait."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)


@contextmanager
def on_each_interrupt(act: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """After `stop_at_any_signal`: while it is open each calls `act`, and none raises. It gives whether there was one.

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
    """Another one has nothing left to interrupt: what a hurried exit leaves, its keeper ends.

    TERM and HUP too: the interpreter takes their handlers away before it ends, and 130 would become the signal's number.
    """
    for number in _ALL:
        signal.signal(number, signal.SIG_IGN)


_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; whether that was before this call is the caller's to ask."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
