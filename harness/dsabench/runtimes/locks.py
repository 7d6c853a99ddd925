"""Locks between processes on one machine. The kernel drops them when the last process that holds the descriptor ends."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from dsabench.errors import InputError


def lock_folder() -> Path:
    """This user's folder for locks, made if it is missing.

    Raises:
        InputError: it cannot be made, or is somebody else's.

    """
    folder = Path(tempfile.gettempdir()) / f"dsabench-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.lstat().st_uid != os.getuid() or not folder.is_dir():
            raise InputError(f"{folder}: is not this user's folder; remove it or set TMPDIR")
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}; set TMPDIR to a folder that can be written") from error
    return folder


def try_lock(file: Path) -> int | None:
    """Lock the file and write our pid into it. Return the descriptor to hold, or None while another holds it.

    Close the descriptor to give the lock back. A child that inherits it holds the lock too.

    Raises:
        InputError: the file cannot be made or written.

    """
    try:
        while True:
            fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            if os.fstat(fd).st_nlink:
                break
            os.close(fd)  # somebody cleaned up the file meanwhile: the next one would lock another
        with suppress(OSError):  # the pid is a courtesy to those who wait; a full disk may not have room for it
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
    except OSError as error:
        raise InputError(f"{file}: cannot lock: {error.strerror}") from error
    return fd


def release(fd: int, file: Path) -> None:
    """Give a lock back, and remove its file where nobody holds it: a child that inherited the descriptor still may."""
    os.close(fd)
    remove_unheld(file)


def remove_unheld(file: Path) -> None:
    """Remove a lock's file that nobody holds; left there where it cannot be removed."""
    with suppress(OSError):  # gone, held (BlockingIOError), or another user's
        fd = os.open(file, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink:
                file.unlink()
        finally:
            os.close(fd)


def holder(file: Path) -> int | None:
    """The pid that locked the file last."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
