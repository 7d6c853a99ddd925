"""Recordings made by hand: what came in which read, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from dsabench.load.client.spool import RequestTimes, Spool, SpoolFiles
from dsabench.load.read.recording import Recording, merge_workers

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def recording_of(requests: Sequence[Sequence[bytes]], reels: int = 1) -> Recording:
    """Reads in turn: the first of every request, then the second of every request; 1 ms from one to the next."""
    files = [SpoolFiles.make() for _ in range(reels)]
    spools = [Spool(*reel.descriptors, on_fault=_raise) for reel in files]
    log = RequestTimes(len(requests))
    now_ns = 0
    for turn in range(max(map(len, requests), default=0)):
        for index, reads in enumerate(requests):
            if turn >= len(reads):
                continue
            spool, data = spools[index % reels], reads[turn]
            if spool.end > spool.high:
                spool.flush()
            now_ns += 1_000_000
            spool.view[spool.end : spool.end + len(data)] = data
            spool.note(now_ns)
            spool.note((index << 32) + len(data))
            spool.end += len(data)
    for spool in spools:
        spool.flush()
    for index in range(len(requests)):
        log.status[index] = 200
    return merge_workers([log], files, start_ns=0, started_at=datetime.now(UTC))


def _raise(error: OSError) -> None:
    raise error
