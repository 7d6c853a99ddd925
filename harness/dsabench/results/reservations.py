"""Which boots are under way in a study that several processes measure at once, so that no two take the same one."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from dsabench.errors import StoreError
from dsabench.results.study_records import BootReservation

FOLDER = ".sweep.lanes"


class Reservations:
    """The bookings of one results folder: a locked file each, so that the kernel ends the booking of a killed process."""

    def __init__(self, results: Path) -> None:
        self._folder = results / FOLDER
        self._mine = self._folder / f"{os.getpid()}.json"

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Alone with journal and bookings: read both, choose and book while it is open.

        Raises:
            StoreError: the folder cannot be written.

        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / "turn.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def live(self) -> tuple[BootReservation, ...]:
        """Those of other processes that still run; only inside a turn."""
        others = (file for file in sorted(self._folder.glob("*.json")) if file != self._mine)
        return tuple(booking for booking in map(_read_held, others) if booking is not None)

    @contextmanager
    def hold(self, booking: BootReservation) -> Iterator[None]:
        """Book until it is closed; enter inside a turn, leave when the boot's records are written.

        Raises:
            StoreError: the booking cannot be written.

        """
        try:
            descriptor = os.open(self._mine, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, booking.model_dump_json().encode())
        except OSError as error:
            raise StoreError(f"{self._mine}: {error.strerror}") from error
        try:
            yield
        finally:
            self._mine.unlink(missing_ok=True)
            os.close(descriptor)

    def remove(self) -> None:
        """Nothing of it is left; for when no process measures any more."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _read_held(file: Path) -> BootReservation | None:
    """The booking of a process that lives; the file of a dead one is removed."""
    with suppress(FileNotFoundError):
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink()
        except BlockingIOError:
            with suppress(ValidationError):
                return BootReservation.model_validate_json(file.read_bytes())
        finally:
            os.close(descriptor)
    return None
