"""Recorded /generate streams → replies, with the exact reader for what is odd and for the ends of what is usual.

Of an answer whose every read was recognised only the last frame is read exactly, of another one what is odd and the
last of each run of usual reads; the other frames are counted (see `recognise`). That gives what reading all of them
exactly would give as long as the frames of one run have the layout of its last one, which is checked there: its exact
count must be the recognised one. Where anything does not fit, the whole answer is read exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dsabench.load.readers import Reply, read_generate
from dsabench.load.readers.generate import close_generate
from dsabench.load.recognise import FRAME
from dsabench.load.recording import Reads, Recording
from dsabench.load.response import decode
from dsabench.load.whole import last_frame, whole_answers
from dsabench.model.sample import Frames

Runs = list[tuple[int, int]]
"""First and last place of each run of usual reads."""


def read_streams(recording: Recording) -> Iterator[Reply]:
    """Every request's reply, in order, times in seconds after the start. Equal to `read_generate` of all its reads."""
    reads = recording.sorted_reads(recognise=True)
    piecewise: _Piecewise | None = None
    for seen in whole_answers(reads):
        for place, (first, end) in enumerate(pairwise(seen.edges)):
            index = seen.first + place
            if seen.whole[place]:
                data = recording.bytes_of(index, seen.last_reads[place])
                frames = Frames(seen.at_s[first:end], seen.tokens[first:end])
                reply = close_generate(last_frame(data), frames, seen.totals[place])
                if reply is not None:
                    yield reply
                    continue
            piecewise = piecewise or _Piecewise(recording, reads)
            reply = piecewise.reply(index)
            yield reply if reply is not None else read_generate(recording.reads(index), 0.0)


class _Piecewise:
    """Reads what is odd exactly, and counts between."""

    def __init__(self, recording: Recording, reads: Reads) -> None:
        assert reads.found is not None
        self._recording, self._reads = recording, reads
        counts, usual = reads.found.counts, reads.found.kinds == FRAME
        self._odd = np.flatnonzero(~usual)
        self._bounds = np.searchsorted(self._odd, reads.starts)
        self._falling = np.flatnonzero((counts[1:] <= counts[:-1]) & usual[1:] & usual[:-1]) + 1
        self._falls = np.searchsorted(self._falling, reads.starts)

    def reply(self, index: int) -> Reply | None:
        """None where that is not enough."""
        first, end = int(self._reads.starts[index]), int(self._reads.starts[index + 1])
        falls = self._falling[self._falls[index] : self._falls[index + 1]]
        if not bool((falls == first).all()):
            return None
        odd = self._odd[self._bounds[index] : self._bounds[index + 1]].tolist()
        return _counted(self._recording, self._reads, index, (first, end), odd)


def _counted(recording: Recording, reads: Reads, index: int, span: tuple[int, int], odd: list[int]) -> Reply | None:
    """Read the odd places and the last of each run; None where that is not enough."""
    runs = _runs(span, odd)
    if not any(last > first for first, last in runs):
        return None
    places = sorted([*odd, *(last for _, last in runs)])
    raw = recording.raw_of(index, places)
    before_run = dict(runs)
    for place, (_, data) in zip(places, raw, strict=True):  # a run begins where a chunk does
        if place + 1 in before_run and place in odd and not data.endswith(b"\r\n"):
            return None
    response = decode(raw)
    if response.error is not None or response.coded or not response.chunked:
        return None
    reply = read_generate(response.body, 0.0)
    frames = _expanded(reads, runs, reply.frames)
    return None if frames is None else replace(reply, frames=frames)


def _runs(span: tuple[int, int], odd: list[int]) -> Runs:
    edges = [span[0] - 1, *odd, span[1]]
    return [(left + 1, right - 1) for left, right in pairwise(edges) if right - left > 1]


def _expanded(reads: Reads, runs: Runs, frames: Frames) -> Frames | None:
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
