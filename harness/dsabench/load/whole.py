"""Recorded /generate answers of which every read was recognised, in columns: headers, frames, `[DONE]`, the last chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dsabench.load.recognise import DONE, END, FRAME, HEAD
from dsabench.load.recording import Reads
from dsabench.model.sample import NO_FRAMES, Counts, Times

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


_BLOCK_READS = 1 << 18
"""Looked at at a time: the columns made here are 40 bytes a read."""


class Whole(NamedTuple):
    """Of n requests in a row with f recognised frames; rows of requests that are not `whole` mean nothing."""

    first: int
    """The first of them."""
    whole: list[bool]
    """[n] Its reads are all of its answer, in order, and its counts grow from 1 on."""
    at_s: Times
    """[f] Frames of all requests, one request after another."""
    tokens: Counts
    """[f] New ones."""
    edges: list[int]
    """[n + 1] Each request's first frame, and the end of the last."""
    last_reads: list[int]
    """[n] Place of the read with its last frame."""
    totals: list[int]
    """[n] Tokens that its last frame tells."""


def whole_answers(reads: Reads) -> Iterator[Whole]:
    """All requests in order, a few thousand at a time. Needs what the recogniser found."""
    count, first = len(reads.starts) - 1, 0
    while first < count:
        end = int(np.searchsorted(reads.starts, reads.starts[first] + _BLOCK_READS, side="right")) - 1
        end = min(max(end, first + 1), count)
        yield _whole(reads, first, end)
        first = end


def _whole(reads: Reads, first_request: int, end_request: int) -> Whole:
    assert reads.found is not None
    base, past = int(reads.starts[first_request]), int(reads.starts[end_request])
    starts = reads.starts[first_request : end_request + 1] - base
    counts, kinds = reads.found.counts[base:past], reads.found.kinds[base:past]
    first, end = starts[:-1], starts[1:]
    framed = np.flatnonzero(kinds & FRAME)
    edges = np.searchsorted(framed, starts)
    whole: Mask = edges[1:] > edges[:-1]
    for part in (HEAD, DONE, END):
        whole &= _inside(np.flatnonzero(kinds & part), starts) == 1
    whole &= _inside(np.flatnonzero(kinds == 0), starts) == 0
    here = np.flatnonzero(whole)
    done = np.flatnonzero(kinds & DONE)
    done_at = done[np.searchsorted(done, first[here])]
    last = framed[edges[1:][here] - 1]
    whole[here] = (kinds[first[here]] & HEAD > 0) & (kinds[end[here] - 1] & END > 0) & (last <= done_at)
    if not len(framed):
        return Whole(first_request, [False] * len(first), NO_FRAMES.at_s, NO_FRAMES.tokens, [0] * len(starts), [], [])
    told = counts[framed]
    tokens = np.diff(told, prepend=np.int32(0))
    begins = edges[:-1][edges[1:] > edges[:-1]]
    tokens[begins] = told[begins]
    whole &= _inside(np.flatnonzero(tokens <= 0), edges) == 0
    last_reads = framed[np.maximum(edges[1:] - 1, 0)]
    return Whole(
        first=first_request,
        whole=whole.tolist(),
        at_s=reads.at_s[base + framed],
        tokens=tokens,
        edges=edges.tolist(),
        last_reads=(last_reads + base).tolist(),
        totals=counts[last_reads].tolist(),
    )


def last_frame(read: bytes) -> bytes:
    """The JSON of the frame that a read of a whole answer holds."""
    begin = read.index(b"\r\n\r\n") if read.startswith(b"HTTP/1.1") else 0
    begin = read.index(b"data: ", begin) + 6
    return read[begin : read.index(b"\n\n", begin)]


def _inside(places: npt.NDArray[Any], edges: npt.NDArray[Any]) -> Places:
    """How many of the ascending `places` lie in each span between two `edges`."""
    return np.diff(np.searchsorted(places, edges))
