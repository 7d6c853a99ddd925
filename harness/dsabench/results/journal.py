"""The append-only journal of a results folder, and the claim that keeps other runs out.

One record a line, written under a lock and synced before anyone relies on it. The journal is the only truth: everything
else (which trials are left, what the proposer knows) is derived from it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from dsabench.errors import BusyError, InputError, StoreError
from dsabench.model.record import SCHEMA_VERSION, Record, RecordKey

FILE_NAME = "journal.jsonl"


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What a journal holds. `problems` are lines that are no records, each as `file:line: what`."""

    records: tuple[Record, ...]
    problems: tuple[str, ...]


class Journal:
    """The journal of one results folder.

    Several processes may append: each append locks the file, reads what the others wrote, refuses a key that is
    there already, writes one line and syncs it. A torn last line (the writer was killed or the disk was full) is set
    aside in `journal.torn` before the next append, so that the journal itself stays one record a line.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._offset = 0
        self._keys: set[RecordKey] = set()

    def read(self) -> JournalContents:
        """All records in the order written. A missing file is an empty journal."""
        return read_journal(self.path)

    def append(self, record: Record) -> None:
        """Write one record; when this returns it is on disk.

        Raises:
            StoreError: the key is recorded already, or the disk is full or read-only (nothing is written then).

        """
        line = (record.model_dump_json(exclude_none=True) + "\n").encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path) as descriptor:
                end = self._catch_up(descriptor)
                if record.key in self._keys:
                    raise StoreError(f"{self.path}: {record.id[:12]} occasion {record.occasion} is recorded already")
                _write_whole(descriptor, line, end)
                self._keys.add(record.key)
                self._offset = end + len(line)
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}: the record was not written") from error

    def _catch_up(self, descriptor: int) -> int:
        """Set a torn tail aside, note the keys others wrote; returns the file's end."""
        end = _set_torn_tail_aside(descriptor, self.path)
        if end > self._offset:
            fresh = os.pread(descriptor, end - self._offset, self._offset)
            for line in fresh.splitlines():
                key = _key_of(line)
                if key is not None:
                    self._keys.add(key)
            self._offset = end
        return end


def read_journal(path: Path) -> JournalContents:
    """Every record of one journal file; what is no record is named, not raised.

    Raises:
        InputError: a newer dsabench wrote it.

    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return JournalContents((), ())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    return parse_journal(data, path)


def parse_journal(data: bytes, path: Path) -> JournalContents:
    """The same of a journal's bytes; `path` names them in the problems.

    Raises:
        InputError: a newer dsabench wrote it.

    """
    records: list[Record] = []
    problems: list[str] = []
    first_line: dict[RecordKey, int] = {}
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = Record.model_validate_json(line)
        except ValidationError as error:
            torn = number == data.count(b"\n") + 1
            problems.append(f"{path}:{number}: {_describe(line, error, path, number, torn=torn)}")
            continue
        if record.key in first_line:
            problems.append(f"{path}:{number}: the same key stands in line {first_line[record.key]}; skipped")
            continue
        first_line[record.key] = number
        records.append(record)
    return JournalContents(tuple(records), tuple(problems))


def _describe(line: bytes, error: ValidationError, path: Path, number: int, *, torn: bool) -> str:
    if torn:
        return "torn last line (its writer was stopped in the middle); the record before it is whole"
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON; skipped"
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise InputError(f"{path}:{number}: schema_version {version} is newer than this dsabench knows: upgrade it")
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"not a record ({where}: {first['msg']}); skipped"


def _key_of(line: bytes) -> RecordKey | None:
    """The key of a line that reads as a record; another line takes no key away from the record that replaces it."""
    try:
        return Record.model_validate_json(line).key
    except ValidationError:
        return None


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file, opened and exclusively locked; the kernel drops the lock of a killed process."""
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_new:
            sync_folder(path.parent)
        yield descriptor
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make a new or renamed entry of a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _set_torn_tail_aside(descriptor: int, path: Path) -> int:
    """Move what stands behind the last newline to `journal.torn`; returns the end of the last whole line.

    A record that lacks its newline alone is read as one, so it gets it.
    """
    size = os.fstat(descriptor).st_size
    end = _end_of_last_line(descriptor, size)
    if end == size:
        return end
    tail = os.pread(descriptor, size - end, end)
    if _key_of(tail) is not None:
        os.pwrite(descriptor, b"\n", size)
        return size + 1
    with path.with_suffix(".torn").open("ab") as aside:
        aside.write(tail + b"\n")
    os.ftruncate(descriptor, end)
    return end


def _end_of_last_line(descriptor: int, size: int) -> int:
    block = 1 << 16
    position = size
    while position > 0:
        start = max(0, position - block)
        newline = os.pread(descriptor, position - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0


def _write_whole(descriptor: int, line: bytes, end: int) -> None:
    """Write all of the line at `end` and sync, or leave the file as it was."""
    try:
        written = os.pwrite(descriptor, line, end)
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, end)
        raise
    if written < len(line):
        os.ftruncate(descriptor, end)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


LOCK_NAME = ".sweep.lock"


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
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
