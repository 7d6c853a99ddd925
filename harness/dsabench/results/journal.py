"""The append-only journal of a results folder, and the claim that keeps other runs out.

Each line is one record, written under a lock and synced before anyone relies on it. The journal is the only truth:
everything else (missing trials, the proposer's history) is derived from it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout
from pydantic import ValidationError

from dsabench.errors import BusyError, InputError, StoreError
from dsabench.model.record import SCHEMA_VERSION, Record, RecordKey

FILE_NAME = "journal.jsonl"
PACKED = ".gz"
"""What a packed file of samples has behind its name."""


@dataclass(frozen=True, slots=True)
class JournalContents:
    """The content of a journal. `problems` are damaged lines, each as `file:line: what`."""

    records: tuple[Record, ...]
    problems: tuple[str, ...]


class Journal:
    """The journal of one results folder.

    Several processes may append. Each append locks the file, reads what others wrote, refuses an existing key,
    writes one line and syncs it. A torn last line (a killed writer, a full disk) is moved to `journal.torn` first,
    so that every line of the journal stays one record.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._end = 0
        """Offset behind the last parsed line."""
        self._known = _JournalParser(self.path)

    def read(self) -> JournalContents:
        """All records in written order. A missing file is an empty journal. Only new lines are parsed.

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
        """Write one record. It is on disk when this returns.

        Raises:
            StoreError: the key exists already, or the disk is full or read-only. Nothing is written then.

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

    def reopened(self) -> Journal:
        """The same, for another process."""
        return Journal(self.path.parent)

    def _follow(self, descriptor: int, end: int) -> None:
        """Parse what was added since the last call, or everything if the file became shorter."""
        if end < self._end:
            self._end, self._known = 0, _JournalParser(self.path)
        self._known.feed(os.pread(descriptor, end - self._end, self._end))
        self._end = end


class _JournalParser:
    """Turns lines into records, and collects the damaged ones."""

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
        """Parse complete lines, each with its newline."""
        for line in lines.split(b"\n")[:-1]:
            self._lines += 1
            if line.strip():
                self._parse(line)

    def add(self, record: Record) -> None:
        """Add the record of the next line."""
        self._lines += 1
        self._keep(record, self._lines)

    def contents(self, tail: bytes = b"") -> JournalContents:
        """All records so far; `tail` is what follows the last newline.

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
            problem = "incomplete last line (its writer was killed); the records before it are complete"
        elif whole.key in self:
            problem = f"duplicate of line {self._line_of[whole.key]}; skipped"
        else:  # complete but for its newline
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
            self._tell(f"duplicate of line {first}; skipped")
        else:
            self._records.append(record)

    def _tell(self, problem: str) -> None:
        said = f"{self._path}:{self._lines}: {problem}"
        if problem.startswith("schema_version "):
            self._newer = self._newer or said
        else:
            self._problems.append(said)


def read_journal(path: Path) -> JournalContents:
    """Read a journal. Damaged lines are reported in `problems`, not raised.

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
    """Parse the bytes of a journal; `path` names them in the problems.

    Raises:
        InputError: a newer dsabench wrote it.

    """
    parser = _JournalParser(path)
    end = data.rfind(b"\n") + 1
    parser.feed(data[:end])
    return parser.contents(data[end:])


_BLOCK = 1 << 20
WHOLE_MAX = 4 << 20
"""Journals up to this many bytes are read completely to find their newest records."""


def newest_records(path: Path) -> Iterator[Record | str]:
    """Yield the records of a journal from the last to the first; a damaged line as its message.

    Of a large journal only the end is read, so duplicate keys are not noticed.

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
    """Yield the non-empty lines from the last to the first, starting with what follows the last newline."""
    pieces: list[bytes] = []
    """Pieces of the line whose start is not read yet, the last piece first"""
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
"""Bytes of a line at most. The longest record ever written has 0.2 MiB."""


def _describe(line: bytes, error: ValidationError) -> str:
    if len(line) > LINE_MAX:
        return f"longer than {LINE_MAX >> 20} MiB; skipped"
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON; skipped"
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return f"schema_version {version} is newer than this dsabench: upgrade dsabench"
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"not a record ({where}: {first['msg']}); skipped"


def _record_of(line: bytes) -> Record | None:
    """The record of a complete line; None if it is damaged. A damaged line does not block its key, so the trial can be
    repeated.
    """
    try:
        return Record.model_validate_json(line)
    except ValidationError:
        return None


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open and lock the file. The kernel releases the lock of a killed process."""
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_new:
            sync_folder(path.parent)
        yield descriptor
    finally:
        os.close(descriptor)


def place_inside(folder: Path, name: str) -> Path:
    """Where a file goes whose name another machine gave.

    Raises:
        InputError: it is outside of the folder.

    """
    given = Path(name)
    if given.is_absolute() or ".." in given.parts:  # a folder of samples may be a link to another disk
        raise InputError(f"{folder}: a record names a file outside of this folder: {name!r}")
    return folder / given


def stored_samples(folder: Path, name: str) -> Path | None:
    """The file of a record's samples, packed (`FILE.gz`) or not; None where the folder does not have it.

    Raises:
        InputError: it is outside of the folder.

    """
    place = place_inside(folder, name)
    return next((one for one in (place, place.with_name(f"{place.name}{PACKED}")) if one.is_file()), None)


@contextmanager
def whole_file(final: Path, otherwise: str) -> Iterator[BinaryIO]:
    """A file that is there whole or not at all, after a power cut too (temporary name, sync, rename).

    Raises:
        StoreError: it could not be written; the line ends with `otherwise`, such as `the samples were not written`.

    """
    temporary = final.with_suffix(".tmp")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(final)
        sync_folder(final.parent)
    except OSError as error:
        raise StoreError(f"{final}: {error.strerror or error}: {otherwise}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a new or renamed file survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _set_torn_tail_aside(descriptor: int, path: Path) -> int:
    """Move what follows the last newline to `journal.torn`; return the end of the last complete line.

    A record that lacks only its newline counts as complete and gets one.
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
    """Write the whole line at `end` and sync, or restore the file."""
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
    """Hold the folder while the context is open. The kernel releases it if this process dies.

    Raises:
        BusyError: another process holds it; the message names its pid.
        StoreError: the folder cannot be created or written.

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
            f"{folder}: another run (pid {pid}) uses this folder: wait for it or use another --results"
        ) from None
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}") from error
    try:
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
