"""Servers that a machine of a cluster has started: here, since tests have one machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

_OF_TESTS = ("PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER")
"""Inherited, also by nodes, from the one of several processes that runs the test."""


def of_booters() -> list[int]:
    """Process ids. They run in a folder of their booter; those of tests beside this one do not count."""
    own = [os.environ.get(name) for name in _OF_TESTS]
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            folder, said = Path(process.cwd()), process.environ()
            is_of_booter = folder.parent.name == "boots" and folder.parent.parent.name.startswith("dsabench-")
            if is_of_booter and [said.get(name) for name in _OF_TESTS] == own:
                found.append(process.pid)
    return found


def wait_until(
    happened: Callable[[], object], run: subprocess.Popen[str] | None = None, *, within_s: float = 90.0
) -> None:
    """Wait for it, for as long as the run goes on."""
    until = time.monotonic() + within_s
    while not happened():
        assert run is None or run.poll() is None, run.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
