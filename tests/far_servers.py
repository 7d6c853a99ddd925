"""Servers that a machine of a cluster has started: here, since tests have one machine."""

from __future__ import annotations

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
