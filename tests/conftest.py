"""Cores and hypothesis profile for this pytest process, and an end for whatever a failed test leaves running."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Generator
from contextlib import suppress

import psutil
import pytest
from hypothesis import HealthCheck, settings

_CLOCKS_DIFFER_S = 0.05


# No deadline: how long an example takes says nothing on a busy machine.
settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])


def pytest_configure(config: pytest.Config) -> None:
    """Prepare this process."""
    # What the user of this machine has cached or added (datasets, releases of SGLang) must not decide a test.
    folder = tempfile.TemporaryDirectory(prefix="dsabench-test-cache-")
    config.add_cleanup(folder.cleanup)
    os.environ["XDG_CACHE_HOME"] = folder.name
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A shell without job control has its background jobs, and all that they start, ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _take_own_cores()


def _take_own_cores() -> None:
    """Keep a worker of pytest-xdist, and what it starts, to its share of the cores.

    A sweep takes all cores that it may use and waits until no other measurement has one of them: without shares, the
    sweeps of two workers would wait for each other.
    """
    worker, count = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    cores = sorted(os.sched_getaffinity(0))
    if worker is not None and count <= len(cores):
        os.sched_setaffinity(0, cores[int(worker.removeprefix("gw")) :: count])


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
