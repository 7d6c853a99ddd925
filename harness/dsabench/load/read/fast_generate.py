"""Replies of recorded /generate answers from recognised frames; whatever does not fit is read exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from dsabench.errors import HttpFault
from dsabench.load.client.response import ResponseReader
from dsabench.load.read.generate import read_generate, reply_from_last_frame
from dsabench.load.read.json_stream import StreamReply
from dsabench.load.read.recognise import DONE, END, FRAME, HEAD
from dsabench.load.read.recording import ReadIndex, Recording
from dsabench.model.sample import NO_FRAMES, Counts, Frames, Times

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


_BLOCK_READS = 1 << 18
"""Looked at at a time: the columns made here are 40 bytes a read."""


class WholeAnswers(NamedTuple):
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
    first_reads: list[int]
    """[n] Place of the read with its first frame."""
    last_reads: list[int]
    """[n] Place of the read with its last frame."""
    totals: list[int]
    """[n] Tokens that its last frame tells."""


def whole_answers(reads: ReadIndex) -> Iterator[WholeAnswers]:
    """All requests in order, a few thousand at a time. Needs what the recogniser found."""
    count, first = len(reads.starts) - 1, 0
    while first < count:
        end = int(np.searchsorted(reads.starts, reads.starts[first] + _BLOCK_READS, side="right")) - 1
        end = min(max(end, first + 1), count)
        yield _whole(reads, first, end)
        first = end


def _whole(reads: ReadIndex, first_request: int, end_request: int) -> WholeAnswers:
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
        return WholeAnswers(
            first_request, [False] * len(first), NO_FRAMES.at_s, NO_FRAMES.tokens, [0] * len(starts), [], [], []
        )
    told = counts[framed]
    tokens = np.diff(told, prepend=np.int32(0))
    begins = edges[:-1][edges[1:] > edges[:-1]]
    tokens[begins] = told[begins]
    whole &= _inside(np.flatnonzero(tokens <= 0), edges) == 0
    last_reads = framed[np.maximum(edges[1:] - 1, 0)]
    return WholeAnswers(
        first=first_request,
        whole=whole.tolist(),
        at_s=reads.at_s[base + framed],
        tokens=tokens,
        edges=edges.tolist(),
        first_reads=(framed[np.minimum(edges[:-1], len(framed) - 1)] + base).tolist(),
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


Runs = list[tuple[int, int]]
"""First and last place of each run of usual reads."""


def read_streams(
    recording: Recording, asked: Sequence[int | None], *, keep_text: bool = False
) -> Iterator[StreamReply]:
    """Every request's reply, in order, times in seconds after the start. Equal to `read_generate` of all its reads.

    The text costs two frames a request: that of the last frame is all of it, and the first one nearly always has some.
    """
    reads = recording.sorted_reads(recognise=True)
    piecewise: _MixedAnswers | None = None
    for seen in whole_answers(reads):
        for place, (first, end) in enumerate(pairwise(seen.edges)):
            index = seen.first + place
            if seen.whole[place]:
                data = recording.bytes_of(index, seen.last_reads[place])
                frames = Frames(seen.at_s[first:end], seen.tokens[first:end])
                look = None
                if keep_text:
                    framed = range(seen.first_reads[place], seen.last_reads[place] + 1)
                    look = partial(_first_text_s, recording, index, framed)
                reply = reply_from_last_frame(last_frame(data), frames, seen.totals[place], asked[index], look)
                if reply is not None:
                    yield reply
                    continue
            piecewise = piecewise or _MixedAnswers(recording, reads, keep_text=keep_text)
            reply = piecewise.reply(index, asked[index])
            if reply is None:
                reply = read_generate(recording.reads(index), 0.0, asked=asked[index], keep_text=keep_text)
            yield reply


def _first_text_s(recording: Recording, index: int, places: Sequence[int]) -> float | None:
    """When the first of these frames with text came; None where none is a frame with text."""
    for at_s, read in recording.raw_of(index, places):
        try:
            frame = orjson.loads(last_frame(read))
        except ValueError:
            return None
        if isinstance(frame, dict) and frame.get("text"):
            return at_s
    return None


class _MixedAnswers:
    """Reads what is odd exactly, and counts between."""

    def __init__(self, recording: Recording, reads: ReadIndex, *, keep_text: bool) -> None:
        assert reads.found is not None
        self._recording, self._reads, self._keep_text = recording, reads, keep_text
        counts, usual = reads.found.counts, reads.found.kinds == FRAME
        self._odd = np.flatnonzero(~usual)
        self._bounds = np.searchsorted(self._odd, reads.starts)
        self._falling = np.flatnonzero((counts[1:] <= counts[:-1]) & usual[1:] & usual[:-1]) + 1
        self._falls = np.searchsorted(self._falling, reads.starts)

    def reply(self, index: int, asked: int | None) -> StreamReply | None:
        """None where that is not enough."""
        first, end = int(self._reads.starts[index]), int(self._reads.starts[index + 1])
        falls = self._falling[self._falls[index] : self._falls[index + 1]]
        if not bool((falls == first).all()):
            return None
        odd = self._odd[self._bounds[index] : self._bounds[index + 1]].tolist()
        if self._keep_text:  # the first frame is looked at for its text
            usual = next((place for place, one in enumerate(odd, start=first) if one != place), first + len(odd))
            odd = sorted([*odd, usual]) if usual < end else odd
        reply = _counted(self._recording, self._reads, index, (first, end), odd, asked=asked, keep_text=self._keep_text)
        if reply is None or reply.spoken is None:
            return reply
        spoken = reply.spoken
        at_ends = spoken.first_at_s == reply.frames.at_s[0] if len(reply.frames) else False
        at_ends = at_ends and spoken.reported_beside_text == spoken.reported_tokens
        return reply if at_ends and not spoken.in_parts else None


def _counted(
    recording: Recording,
    reads: ReadIndex,
    index: int,
    span: tuple[int, int],
    odd: list[int],
    *,
    asked: int | None,
    keep_text: bool,
) -> StreamReply | None:
    """Read the odd places and the last of each run; None where that is not enough."""
    runs = _runs(span, odd)
    if not any(last > first for first, last in runs):
        return None
    places = sorted([*odd, *(last for _, last in runs)])
    raw = list(recording.raw_of(index, places))
    before_run = dict(runs)
    for place, (_, data) in zip(places, raw, strict=True):  # a run begins where a chunk does
        if place + 1 in before_run and place in odd and not data.endswith(b"\r\n"):
            return None
    response = ResponseReader()
    try:
        body = list(response.body(raw))
    except HttpFault:  # the exact reading tells it
        return None
    if not response.is_chunked:
        return None
    reply = read_generate(body, 0.0, asked=asked, keep_text=keep_text)
    frames = _expanded(reads, runs, reply.frames)
    return None if frames is None else replace(reply, frames=frames)


def _runs(span: tuple[int, int], odd: list[int]) -> Runs:
    edges = [span[0] - 1, *odd, span[1]]
    return [(left + 1, right - 1) for left, right in pairwise(edges) if right - left > 1]


def _expanded(reads: ReadIndex, runs: Runs, frames: Frames) -> Frames | None:
    """Put a run's frames in the place of its last one; None where the exact count is another than the recognised."""
    assert reads.found is not None
    counts = reads.found.counts
    at_s, tokens = frames.at_s.tolist(), frames.tokens.tolist()
    frame = total = 0
    parts: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]] = []
    for first, last in runs:
        run_end_s = float(reads.at_s[last])
        begun = frame
        while frame < len(at_s) and at_s[frame] < run_end_s:
            total += tokens[frame]
            frame += 1
        parts.append((frames.at_s[begun:frame], frames.tokens[begun:frame]))
        before = total
        if frame == len(at_s) or at_s[frame] != run_end_s or total + tokens[frame] != counts[last]:
            return None
        if counts[first] <= before:
            return None
        steps = counts[first : last + 1].copy()
        steps[1:] -= counts[first:last]
        steps[0] -= before
        parts.append((reads.at_s[first : last + 1], steps))
        total, frame = int(counts[last]), frame + 1
    parts.append((frames.at_s[frame:], frames.tokens[frame:]))
    return Frames(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))
