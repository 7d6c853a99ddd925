"""Run several workers at the same time, each in its own process on an equal share of the machine."""

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
"""What a lane does with its context."""


def run_lanes(context: StudyContext, measure: Measure, observer: StudyObserver) -> None:
    """Fork one process per share and wait until all have ended.

    The fork happens before this process starts threads, so each lane has everything that was read so far. If a lane
    is killed, the others take over its work. The first interrupt is forwarded, and the lanes stop after the current
    trial; a second one is forwarded too, and they stop at once.

    Raises:
        TrialFault: a lane failed. It has printed the error itself.

    """
    fork, parent = multiprocessing.get_context("fork"), os.getpid()
    running: list[BaseProcess] = [
        fork.Process(target=_in_child, args=(context, measure, observer, number, parent), name=f"lane {number}")
        for number in range(1, len(context.shares) + 1)
    ]
    with on_each_interrupt(lambda: _terminate(running)) as interrupted:
        _start(running)
        if interrupted():  # an interrupt that came during the start has reached only the lanes that existed then
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
    hold_interrupts()  # an exception that is raised inside fork() may be lost
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
        if process.pid is not None:  # it was started
            process.terminate()


def _in_child(context: StudyContext, measure: Measure, observer: StudyObserver, number: int, parent: int) -> None:
    # The terminal sends Ctrl-C to the whole process group. Only the parent may get it: it then ends each lane once.
    os.setpgid(0, 0)
    stop_at_any_signal()
    try:
        release_interrupts()
        context.shares[number - 1].take()
        run_loop(_beside_parent(context, measure, observer.for_lane(number), parent))
        hold_interrupts()  # all work is done: an interrupt now would only turn success into failure
    except KeyboardInterrupt:
        os._exit(130)
    except DsabenchError as error:
        hold_interrupts()
        sys.stderr.write(f"error: lane {number}: {error}\n")
        sys.stderr.flush()
        os._exit(2 if isinstance(error, InputError) else 3)


async def _beside_parent(context: StudyContext, measure: Measure, observer: StudyObserver, parent: int) -> None:
    """Run the lane until it is done or its parent process has died."""
    watching = asyncio.ensure_future(_until(lambda: os.getppid() != parent))
    watching.add_done_callback(lambda done: None if done.cancelled() else os.kill(os.getpid(), signal.SIGTERM))
    try:
        await measure(await lane_of(context), observer)
    finally:
        watching.cancel()


async def _until(happened: Callable[[], bool]) -> None:
    while not happened():
        await asyncio.sleep(_PARENT_S)
