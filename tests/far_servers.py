"""Servers that a machine of a cluster has started: here, since tests have one machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil


def of_booters() -> list[int]:
    """Process ids. They run in a folder of their booter, unlike those of other tests beside this one."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            folder = Path(process.cwd())
            if folder.parent.name == "boots" and folder.parent.parent.name.startswith("dsabench-"):
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
