"""Ctrl-C, TERM and HUP: the first one stops the work in order, a later one at once."""

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
"""Seconds after which a loop that ignores an interrupt is stuck. A healthy one reacts within milliseconds."""


T = TypeVar("T")


def run_loop(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine like `asyncio.run`, but never raise a KeyboardInterrupt inside the running loop.

    At a second Ctrl-C asyncio raises between any two steps of the loop. That can lose the wake-up of a task, and
    closing the loop then waits for it forever. Here the first interrupt cancels the work, and each later one
    cancels every running task.

    Raises:
        KeyboardInterrupt: there was an interrupt, and the work has ended.

    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, or handled by somebody else
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
    """Handle Ctrl-C while a loop runs. It raises only if the loop is stuck, or takes long to close."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: asyncio.Task[T]) -> None:
        self.count = 0
        self._loop, self._work = loop, work
        self._left: set[asyncio.Task[object]] = set()
        """Tasks that were running when the work ended. Only these may be cancelled, not the tasks that close the loop.
        """
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
    """Make TERM and HUP raise a KeyboardInterrupt, for work that `run_loop` drives."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in _ENDING:
        signal.signal(number, lambda *_: os.kill(os.getpid(), signal.SIGINT))


async def cancel_at_first_signal(work: Coroutine[object, object, int], farewell: str) -> int:
    """Stop the work in order at the first signal, and the whole process, with its farewell, at the second.

    Use it for work that loses nothing if it ends at once. The first signal raises asyncio's CancelledError in it.
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
    """Delay interrupts of this thread: an exception inside fork() may be lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)


def release_interrupts() -> None:
    """End `hold_interrupts`. A child inherits the delay and must call this too."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)


@contextmanager
def on_each_interrupt(act: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call `act` at each interrupt while the context is open, instead of raising. Call `stop_at_any_signal` before.

    Yields a function that tells whether there was an interrupt.

    Raises:
        KeyboardInterrupt: at the end, if there was one.

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
    """Ignore further interrupts during a hurried exit; the guard process cleans up what remains.

    TERM and HUP must be ignored explicitly: the interpreter removes their handlers before it ends, and the exit
    code 130 would become the signal's number.
    """
    for number in _ALL:
        signal.signal(number, signal.SIG_IGN)


_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends. The caller must check whether the parent has ended
    already.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
