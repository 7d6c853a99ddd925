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
        self._end = 0
        """Of the lines that are parsed."""
        self._known = _JournalParser(self.path)

    def read(self) -> JournalContents:
        """All records in the order written; a missing file is an empty journal. Only lines that are new are parsed.

        Raises:
            InputError: it cannot be read, or a newer dsabench wrote it.

        """
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                end = _end_of_last_line(file.fileno(), size)
                self._follow(file.fileno(), end)
                return self._known.contents(os.pread(file.fileno(), size - end, end))
        except FileNotFoundError:
            return JournalContents((), ())
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror}") from error

    def append(self, record: Record) -> None:
        """Write one record; when this returns it is on disk.

        Raises:
            StoreError: the key is recorded already, or the disk is full or read-only (nothing is written then).

        """
        line = (record.model_dump_json(exclude_none=True) + "\n").encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path) as descriptor:
                end = _set_torn_tail_aside(descriptor, self.path)
                self._follow(descriptor, end)
                if record.key in self._known:
                    raise StoreError(f"{self.path}: {record.id[:12]} occasion {record.occasion} is recorded already")
                _write_whole(descriptor, line, end)
                self._known.add(record)
                self._end = end + len(line)
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}: the record was not written") from error

    def _follow(self, descriptor: int, end: int) -> None:
        """Parse what was written since the last look; all of it where somebody shortened the file."""
        if end < self._end:
            self._end, self._known = 0, _JournalParser(self.path)
        self._known.feed(os.pread(descriptor, end - self._end, self._end))
        self._end = end


class _JournalParser:
    """The records of lines as they come in, and what is no record."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = 0
        self._records: list[Record] = []
        self._problems: list[str] = []
        self._newer: str | None = None
        self._line_of: dict[RecordKey, int] = {}

    def __contains__(self, key: RecordKey) -> bool:
        return key in self._line_of

    def feed(self, lines: bytes) -> None:
        """Whole lines, each with its newline."""
        for line in lines.split(b"\n")[:-1]:
            self._lines += 1
            if line.strip():
                self._parse(line)

    def add(self, record: Record) -> None:
        """The record of the next line."""
        self._lines += 1
        self._keep(record, self._lines)

    def contents(self, tail: bytes = b"") -> JournalContents:
        """Everything so far; `tail` is what stands behind the last newline.

        Raises:
            InputError: a newer dsabench wrote a line.

        """
        if self._newer is not None:
            raise InputError(self._newer)
        records, problems = tuple(self._records), tuple(self._problems)
        if not tail.strip():
            return JournalContents(records, problems)
        whole = _record_of(tail)
        if whole is None:
            problem = "torn last line (its writer was stopped in the middle); the record before it is whole"
        elif whole.key in self:
            problem = f"the same key stands in line {self._line_of[whole.key]}; skipped"
        else:  # it lacks its newline alone
            return JournalContents((*records, whole), problems)
        return JournalContents(records, (*problems, f"{self._path}:{self._lines + 1}: {problem}"))

    def _parse(self, line: bytes) -> None:
        try:
            record = Record.model_validate_json(line if len(line) <= LINE_MAX else b"")
        except ValidationError as error:
            self._tell(_describe(line, error))
        else:
            self._keep(record, self._lines)

    def _keep(self, record: Record, line: int) -> None:
        if (first := self._line_of.setdefault(record.key, line)) != line:
            self._tell(f"the same key stands in line {first}; skipped")
        else:
            self._records.append(record)

    def _tell(self, problem: str) -> None:
        said = f"{self._path}:{self._lines}: {problem}"
        if problem.startswith("schema_version "):
            self._newer = self._newer or said
        else:
            self._problems.append(said)


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
    parser = _JournalParser(path)
    end = data.rfind(b"\n") + 1
    parser.feed(data[:end])
    return parser.contents(data[end:])


_BLOCK = 1 << 20
WHOLE_MAX = 4 << 20
"""Bytes of a journal up to which all of it is read for its newest records."""


def newest_records(path: Path) -> Iterator[Record | str]:
    """The records of a journal from the last to the first, as far as they are asked for; a line that is none as its problem.

    Of a large journal only the end is read, so that a key that stands twice is not seen.

    Raises:
        InputError: it cannot be read, or a newer dsabench wrote it.

    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= WHOLE_MAX:
                found = parse_journal(file.read(), path)
                yield from found.problems
                yield from reversed(found.records)
                return
            for line in _lines_from_end(file.fileno(), size):
                try:
                    yield Record.model_validate_json(line if len(line) <= LINE_MAX else b"")
                except ValidationError as error:
                    problem = _describe(line, error)
                    if problem.startswith("schema_version "):
                        raise InputError(f"{path}: {problem}") from error
                    yield f"{path}: {problem}"
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _lines_from_end(descriptor: int, size: int) -> Iterator[bytes]:
    """Lines that are not empty, from the last to the first; what stands behind the last newline comes first."""
    pieces: list[bytes] = []
    """Of the line whose beginning is still to be read, the last one first."""
    position = size
    while position > 0:
        start = max(0, position - _BLOCK)
        first, *whole = os.pread(descriptor, position - start, start).split(b"\n")
        position = start
        if not whole:
            pieces.append(first)
            continue
        last = b"".join([whole.pop(), *reversed(pieces)])
        yield from (line for line in (last, *reversed(whole)) if line.strip())
        pieces = [first]
    if rest := b"".join(reversed(pieces)).strip():
        yield rest


LINE_MAX = 64 << 20
"""Bytes of a line; the longest record that was ever written has a fifth of a MiB."""


def _describe(line: bytes, error: ValidationError) -> str:
    if len(line) > LINE_MAX:
        return f"longer than {LINE_MAX >> 20} MiB; skipped"
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON; skipped"
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return f"schema_version {version} is newer than this dsabench knows: upgrade it"
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"not a record ({where}: {first['msg']}); skipped"


def _record_of(line: bytes) -> Record | None:
    """The record of a line that reads as one; another line takes no key away from the record that replaces it."""
    try:
        return Record.model_validate_json(line)
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
    if _record_of(tail) is not None:
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
