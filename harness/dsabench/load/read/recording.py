"""What came back, on disk as it came: reads sorted by request, taken out of HTTP's framing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from dsabench.errors import HttpFault, one_line
from dsabench.http import Read
from dsabench.load.client.response import ResponseReader
from dsabench.load.client.spool import RequestTimes, SpoolFiles
from dsabench.load.read.recognise import FrameRecogniser, RecognisedReads

Seconds = npt.NDArray[np.float64]

INDEX = np.dtype([("at_ns", "<i8"), ("length", "<u4"), ("request", "<u4")])
"""One read; 16 bytes. What `Spool` writes as two int64 is this on a little-endian machine."""
_BLOCK_READS = 1 << 16
_SHOWN_BYTES = 4000


@dataclass(frozen=True, slots=True)
class ReadIndex:
    """Every read of the run, those of one request together and in order; columns of equal length.

    25 bytes a read in memory; `close` of the recording lets them go.
    """

    at_s: Seconds
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int32]
    worker: npt.NDArray[np.int16]
    """Per request: whose files hold it."""
    found: RecognisedReads | None
    """What `FrameRecogniser` saw in each read, where it was asked."""
    starts: npt.NDArray[np.int64]
    """Place of each request's first read, and one more: the end of the last."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A run's requests in columns, in the order of their indices. Times are seconds after the start.

    Errors are strings that start with their class:

    - `connect: …` no connection
    - `http 503: …` another status than 200, with the start of the body
    - `reset: …` the connection broke before the headers
    - `cut: …` the connection broke in the body
    - `timeout: …` a phase took longer than allowed
    - `protocol: …` the answer is no valid HTTP
    - `garbage: …` more came than an answer or its headers can have
    """

    started_at: datetime
    """Wall clock at 0.0."""
    start_ns: int
    """`perf_counter_ns` at 0.0."""
    scheduled_s: Seconds
    """Open loop: when the arrivals put it. Closed loop: when its slot became free."""
    sent_s: Seconds
    """Just before its first bytes left; of one never written, when it was tried."""
    done_s: Seconds
    """When its last bytes came, or when it failed."""
    late_s: Seconds
    """What the client itself was late by; waiting for a slot is not in it."""
    status: npt.NDArray[np.int32]
    """0 where no headers came."""
    errors: Mapping[int, str]
    spools: Sequence[SpoolFiles]
    _reads: list[ReadIndex] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sent_s)

    def sorted_reads(self, *, recognise: bool = False) -> ReadIndex:
        """All reads by request; made on the first call, and again when `counts` are wanted and not there."""
        if not self._reads or (recognise and self._reads[0].found is None):
            self._reads[:] = [_sorted(self.spools, len(self), self.start_ns, FrameRecogniser() if recognise else None)]
        return self._reads[0]

    def raw(self, index: int) -> Iterator[Read]:
        """One request's reads as they came off the wire: (seconds after the start, bytes)."""
        reads = self.sorted_reads()
        first, end = int(reads.starts[index]), int(reads.starts[index + 1])
        return self.raw_of(index, range(first, end))

    def raw_of(self, index: int, places: Sequence[int]) -> Iterator[Read]:
        """Some of one request's reads, by their places in `sorted_reads`."""
        reads = self.sorted_reads()
        fd = self.spools[int(reads.worker[index])].data.fileno()
        for place in places:
            data = os.pread(fd, int(reads.length[place]), int(reads.offset[place]))
            yield float(reads.at_s[place]), data

    def bytes_of(self, index: int, place: int) -> bytes:
        """The bytes alone of one of its reads."""
        reads = self.sorted_reads()
        return os.pread(
            self.spools[reads.worker.item(index)].data.fileno(), reads.length.item(place), reads.offset.item(place)
        )

    def reads(self, index: int) -> Iterator[Read]:
        """Body of one answer as it came: (seconds after the start, bytes), without chunk heads.

        Raises:
            HttpFault: while it is read: it is compressed.

        """
        return ResponseReader().body(self.raw(index))

    def error(self, index: int) -> str | None:
        """Why a request failed; None if it did not, as far as HTTP goes."""
        broken = self.errors.get(index)
        status = int(self.status[index])
        if status not in {0, 200} and (broken is None or broken.startswith("cut")):
            return f"http {status}: {one_line(self._beginning(index))}"
        return broken

    def _beginning(self, index: int) -> str:
        """Of a body, as text."""
        found = bytearray()
        try:
            for _, data in self.reads(index):
                found += data
                if len(found) > _SHOWN_BYTES:
                    break
        except HttpFault as fault:
            return str(fault)
        return found[:_SHOWN_BYTES].decode("utf-8", "replace")

    def broken(self) -> set[int]:
        """Requests that `error` may say something of."""
        return {*self.errors, *np.flatnonzero((self.status != 0) & (self.status != 200)).tolist()}

    def close(self) -> None:
        """Give the disk and the memory back."""
        self._reads.clear()
        for spool in self.spools:
            spool.close()


def _blocks(spool: SpoolFiles) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Parts of the index in order of arrival, each with the place of its first byte in the data."""
    offset, at = 0, 0
    while raw := os.pread(spool.index.fileno(), _BLOCK_READS * INDEX.itemsize, at):
        block = np.frombuffer(raw, INDEX)
        yield offset, block
        offset += int(block["length"].sum(dtype=np.int64))
        at += len(raw)


def merge_workers(
    times: Sequence[RequestTimes], spools: Sequence[SpoolFiles], *, start_ns: int, started_at: datetime
) -> Recording:
    """One recording of all workers; each request was sent by one of them."""

    def column(name: str) -> npt.NDArray[np.int64]:
        parts = [np.frombuffer(getattr(own, name), np.int64) for own in times]
        longest: npt.NDArray[np.int64] = np.maximum.reduce(parts)
        return longest

    status = np.maximum.reduce([np.frombuffer(own.status, np.int32) for own in times])
    errors = {index: error for own in times for index, error in own.errors.items()}
    return Recording(
        started_at=started_at,
        start_ns=start_ns,
        scheduled_s=(column("scheduled_ns") - start_ns) / 1e9,
        sent_s=(column("sent_ns") - start_ns) / 1e9,
        done_s=(column("done_ns") - start_ns) / 1e9,
        late_s=column("late_ns") / 1e9,
        status=status,
        errors=errors,
        spools=tuple(spools),
    )


def _sorted(spools: Sequence[SpoolFiles], count: int, start_ns: int, recogniser: FrameRecogniser | None) -> ReadIndex:
    """Counting sort by request, a block of the index at a time, so that memory holds the result and one block."""
    counts, worker_of = np.zeros(count + 1, np.int64), np.zeros(count, np.int16)
    for number, spool in enumerate(spools):
        for _, block in _blocks(spool):
            here = np.bincount(block["request"], minlength=count)
            counts[1:] += here
            worker_of[here > 0] = number
    starts = np.cumsum(counts)
    total = int(starts[-1])
    found = None if recogniser is None else RecognisedReads(np.empty(total, np.int32), np.empty(total, np.uint8))
    reads = ReadIndex(np.empty(total), np.empty(total, np.int64), np.empty(total, np.int32), worker_of, found, starts)
    free = starts[:-1].copy()
    for spool in spools:
        for offset, block in _blocks(spool):
            length = block["length"].astype(np.int64)
            places = _places(block["request"], free)
            reads.at_s[places] = (block["at_ns"] - start_ns) / 1e9
            reads.offset[places] = offset + np.cumsum(length) - length
            reads.length[places] = length
            if recogniser is not None and found is not None:
                found.counts[places], found.kinds[places] = recogniser.look(
                    spool.data.fileno(), offset, block["length"]
                )
    return reads


def _places(requests: npt.NDArray[np.uint32], free: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each read of a block goes; `free` moves on."""
    small = requests.astype(np.uint16) if len(free) <= 1 << 16 else requests
    order = np.argsort(small, kind="stable")  # a radix sort for 16 bits
    ordered = requests[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    sizes = np.diff(np.append(first, len(ordered)))
    rank = np.arange(len(ordered)) - np.repeat(first, sizes)
    places = np.empty(len(ordered), np.int64)
    places[order] = free[ordered] + rank
    free[ordered[first]] += sizes
    return places
