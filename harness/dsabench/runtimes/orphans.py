"""The last resort: find what a boot left behind by the mark in its environment, when guard and keeper were both killed."""

from __future__ import annotations

import time

import psutil

from dsabench.machine.cpu_use import processes_with

MARK = "DSABENCH_BOOT"
"""Variable in the environment of a server and of all that it starts: the uuid of the boot."""


def kill_marked(boot: str, timeout_s: float = 5.0) -> list[int]:
    """SIGKILL every process of that boot, and return the pids that survive it. Takes a few ms per 100 processes."""
    deadline = time.monotonic() + timeout_s
    while left := processes_with(MARK, boot):
        if time.monotonic() > deadline:
            return [process.pid for process in left]
        for process in left:
            try:
                process.kill()  # psutil checks that the number has not been reused
            except psutil.Error:
                continue
        psutil.wait_procs(left, timeout=0.1)
    return []
