"""Bytes of all connections, kept in the order of their arrival: an arena in memory, emptied into a file.

Every read leaves 16 bytes in an index beside the data: arrival (int64, ns of `perf_counter_ns`) and
`request << 32 | length` (int64). Where a read lies follows from the lengths before it. Memory holds one arena and its
index, however long the run: at the worst, of reads of one byte, 6 MB.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Self

ARENA_BYTES = 1 << 19
"""Fits a core's L2 cache, so that the parser reads what the kernel has just written there."""
INDEX_BYTES = 16
READ_BYTES = 1 << 17
"""A connection is never offered less room than this."""


class Spool:
    """Mutable on purpose: the one place that the hot path writes to."""

    __slots__ = ("_bytes_left", "_data_fd", "_index_fd", "end", "fault", "high", "index", "note", "on_fault", "view")

    def __init__(
        self, data_fd: int, index_fd: int, on_fault: Callable[[OSError], None], bytes_max: int | None = None
    ) -> None:
        self._data_fd, self._index_fd = data_fd, index_fd
        self.view = memoryview(bytearray(ARENA_BYTES))
        self._bytes_left = bytes_max
        self.end = 0
        """Bytes of the arena in use."""
        self.high = ARENA_BYTES - READ_BYTES
        """Beyond this many it must be flushed before the next read is received to `view[end:]`."""
        self.index = array("q")
        self.note = self.index.append
        self.fault: OSError | None = None
        self.on_fault = on_fault

    def flush(self) -> None:
        """Empty into the files.

        A full disk, or more bytes than the run may have (EMSGSIZE), is told once to `on_fault` and not raised: from
        inside a transport's callback it would be taken for an error of the connection.
        """
        if self.fault is None:
            try:
                if self._bytes_left is not None:
                    self._bytes_left -= self.end
                    if self._bytes_left < 0:
                        raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))  # noqa: TRY301  (as a full disk)
                _write_all(self._data_fd, self.view[: self.end])
                _write_all(self._index_fd, memoryview(self.index.tobytes()))
            except OSError as error:
                self.fault = error
                self.on_fault(error)
        self.end = 0
        del self.index[:]


@dataclass(frozen=True, slots=True)
class SpoolFiles:
    """One worker's files."""

    data: IO[bytes]
    index: IO[bytes]

    @classmethod
    def make(cls) -> Self:
        """Empty ones."""
        return cls(unnamed_file(), unnamed_file())

    @property
    def descriptors(self) -> tuple[int, int]:
        """Of data and index."""
        return self.data.fileno(), self.index.fileno()

    def close(self) -> None:
        """Give the disk back."""
        self.data.close()
        self.index.close()

    def read_count(self) -> int:
        """Reads in them."""
        return os.fstat(self.index.fileno()).st_size // INDEX_BYTES


def unnamed_file() -> IO[bytes]:
    """A file that is gone with its last descriptor, also after kill -9. Its folder follows TMPDIR."""
    try:
        descriptor = os.open(spool_folder(), os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # a file system that has no such files, or no such folder: what tempfile does then is right
        import tempfile  # noqa: PLC0415  (8 ms that few need)

        return tempfile.TemporaryFile(prefix="dsabench-", buffering=0)
    return os.fdopen(descriptor, "r+b", buffering=0)


def spool_folder() -> str:
    """Where the files are."""
    return os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  (unnamed files)


def _write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


class RequestTimes:
    """Filled by the dispatcher. Times are ns of `perf_counter_ns`, which all processes of a machine share; 0: not yet."""

    __slots__ = ("done_ns", "errors", "late_ns", "scheduled_ns", "sent_ns", "status")

    def __init__(self, count: int) -> None:
        self.scheduled_ns, self.sent_ns, self.done_ns, self.late_ns = (array("q", bytes(8 * count)) for _ in range(4))
        self.status = array("i", bytes(4 * count))
        self.errors: dict[int, str] = {}


@dataclass(slots=True)
class RequestCounter:
    """Read by whoever shows it, written by the worker; an int is enough of a lock."""

    ended: int = 0
