"""Several workers on equal shares of the machine: a process for each share, which take boots in turns."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.process import BaseProcess

from dsabench.errors import DsabenchError, InputError, TrialFault
from dsabench.signals import hold_interrupts, on_each_interrupt, release_interrupts, run_loop, stop_at_any_signal
from dsabench.study.context import StudyContext, lane_of
from dsabench.study.session import StudyObserver

_PARENT_S = 0.5

Measure = Callable[[StudyContext, StudyObserver], Awaitable[object]]
"""What a lane does with its context: the study itself, but for what one process does alone."""


def run_lanes(context: StudyContext, measure: Measure, observer: StudyObserver) -> None:
    """Fork a process a share and wait until all have ended; a KeyboardInterrupt ends them in order first.

    Forked before this process has threads: what was read and asked before is theirs too. What one that was killed had
    begun, the others take up. Asked to end again, they are told again: they hurry then, as a study without lanes does.

    Raises:
        TrialFault: one of them ended with an error, which it has told.

    """
    fork, parent = multiprocessing.get_context("fork"), os.getpid()
    running: list[BaseProcess] = [
        fork.Process(target=_in_child, args=(context, measure, observer, number, parent), name=f"lane {number}")
        for number in range(1, len(context.shares) + 1)
    ]
    with on_each_interrupt(lambda: _terminate(running)) as interrupted:
        _start(running)
        if interrupted():  # one of them was not known yet
            _terminate(running)
        for process in running:
            process.join()
    killed = [process.name for process in running if (process.exitcode or 0) < 0]
    if killed:
        observer.note(f"warning: {', '.join(killed)} was killed; what is left is measured without it")
    failed = [process.name for process in running if (process.exitcode or 0) > 0]
    if failed:
        raise TrialFault(
            "internal", f"{', '.join(failed)} ended with an error (above); what is measured is kept", stage="boot"
        )


def _start(lanes: Sequence[BaseProcess]) -> None:
    hold_interrupts()  # at a fork an exception may be lost
    try:
        for process in lanes:
            process.start()
    except OSError:
        _terminate(lanes)
        raise
    finally:
        release_interrupts()


def _terminate(lanes: Sequence[BaseProcess]) -> None:
    for process in lanes:
        if process.pid is not None:  # it has been started
            process.terminate()


def _in_child(context: StudyContext, measure: Measure, observer: StudyObserver, number: int, parent: int) -> None:
    os.setpgid(0, 0)  # a Ctrl-C is the parent's, which ends each of us once
    stop_at_any_signal()
    try:
        release_interrupts()
        context.shares[number - 1].take()
        run_loop(_beside_parent(context, measure, observer.for_lane(number), parent))
        hold_interrupts()  # they are too late
    except KeyboardInterrupt:
        os._exit(130)
    except DsabenchError as error:
        hold_interrupts()
        sys.stderr.write(f"error: lane {number}: {error}\n")
        sys.stderr.flush()
        os._exit(2 if isinstance(error, InputError) else 3)


async def _beside_parent(context: StudyContext, measure: Measure, observer: StudyObserver, parent: int) -> None:
    """The lane, for as long as whoever started it lives."""
    watching = asyncio.ensure_future(_until(lambda: os.getppid() != parent))
    watching.add_done_callback(lambda done: None if done.cancelled() else os.kill(os.getpid(), signal.SIGTERM))
    try:
        await measure(await lane_of(context), observer)
    finally:
        watching.cancel()


async def _until(happened: Callable[[], bool]) -> None:
    while not happened():
        await asyncio.sleep(_PARENT_S)
