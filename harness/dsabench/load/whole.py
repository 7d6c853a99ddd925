"""Recorded /generate answers of which every read was recognised, in columns: headers, frames, `[DONE]`, the last chunk."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dsabench.load.recognise import DONE, END, FRAME, HEAD
from dsabench.load.recording import Reads
from dsabench.model.sample import NO_FRAMES, Counts, Times

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Whole(NamedTuple):
    """Of n requests with f recognised frames; rows of requests that are not `whole` mean nothing."""

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


def whole_answers(reads: Reads) -> Whole:
    """Needs what the recogniser found."""
    assert reads.found is not None
    (counts, kinds), starts = reads.found, reads.starts
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
        return Whole([False] * len(first), NO_FRAMES.at_s, NO_FRAMES.tokens, [0] * len(starts), [], [])
    told = counts[framed]
    tokens = np.diff(told, prepend=np.int32(0))
    begins = edges[:-1][edges[1:] > edges[:-1]]
    tokens[begins] = told[begins]
    whole &= _inside(np.flatnonzero(tokens <= 0), edges) == 0
    last_reads = framed[np.maximum(edges[1:] - 1, 0)]
    return Whole(
        whole.tolist(), reads.at_s[framed], tokens, edges.tolist(), last_reads.tolist(), counts[last_reads].tolist()
    )


def last_frame(read: bytes) -> bytes:
    """The JSON of the frame that a read of a whole answer holds."""
    begin = read.index(b"\r\n\r\n") if read.startswith(b"HTTP/1.1") else 0
    begin = read.index(b"data: ", begin) + 6
    return read[begin : read.index(b"\n\n", begin)]


def _inside(places: npt.NDArray[Any], edges: npt.NDArray[Any]) -> Places:
    """How many of the ascending `places` lie in each span between two `edges`."""
    return np.diff(np.searchsorted(places, edges))
