"""One process at a time plans or changes a runtime's tree."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsabench.emit.manifest import sha256
from dsabench.errors import InputError, StoreError
from dsabench.runtimes.locks import lock_folder, release, try_lock


@contextmanager
def alone(package: Path) -> Iterator[None]:
    """Hold the package's locks: this user's, and the folder's own, which also holds those with another TMPDIR or user.

    Raises:
        InputError: another process has them.
        StoreError: what was done meanwhile met an error of the file system.

    """
    file = lock_folder() / f"patch-{sha256(os.fsencode(package))[:16]}.lock"
    held = try_lock(file)
    if held is None:
        raise InputError(_TAKEN.format(package))
    try:
        with _folder(package):
            yield
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}") from error
    finally:
        release(held, file)


_TAKEN = "{}: another dsabench is patching it"


@contextmanager
def _folder(package: Path) -> Iterator[None]:
    folder = os.open(package, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(_TAKEN.format(package)) from None
        except OSError:  # NFS locks for writing only what is open for writing
            pass
        yield
    finally:
        os.close(folder)
