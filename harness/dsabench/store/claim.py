"""One sweep or bench at a time per results folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dsabench.errors import BusyError, StoreError

LOCK_NAME = ".sweep.lock"


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Hold the folder while the context is open; the kernel lets go of it when the holder dies.

    Raises:
        BusyError: another process holds it; the line names its pid.
        StoreError: the folder cannot be made or written.

    """
    holder = folder / ".sweep.pid"
    lock = FileLock(folder / LOCK_NAME, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        holder.write_text(str(os.getpid()))
    except Timeout:
        pid = holder.read_text() if holder.is_file() else "unknown"
        raise BusyError(
            f"{folder}: another run (pid {pid}) writes there: wait for it or name another --results"
        ) from None
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}") from error
    try:
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
