"""What a failed test leaves running is ended, lest it holds cores and ports that every later test waits for.

With `DSABENCH_TESTS_PIN=1` each of several pytest workers keeps to a core of its own, and so does what it starts: sweeps, which
take all cores that they may use, then run side by side.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import suppress

import psutil
import pytest

_CLOCKS_DIFFER_S = 0.05


def pytest_configure() -> None:
    """Take one core for this worker, where it is asked for; and let what the tests start hear a Ctrl-C.

    A shell without job control lets its background jobs, and all that they start, ignore one.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if worker and os.environ.get("DSABENCH_TESTS_PIN") == "1":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker) % len(cores)]})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Kill what the test itself has started and not its fixtures; keepers end the servers of whatever is killed."""
    report = yield
    if call.when == "call" and report.failed:
        begun_s = call.start + _CLOCKS_DIFFER_S
        left = [child for child in psutil.Process().children() if child.create_time() > begun_s]
        for child in left:
            with suppress(psutil.NoSuchProcess):  # it has ended by itself meanwhile
                child.kill()
        psutil.wait_procs(left, timeout=10)
    return report
