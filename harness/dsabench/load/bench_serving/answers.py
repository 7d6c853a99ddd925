"""Samples → the columns that bench_serving's formulas read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsabench.load.read.json_stream import ReplyText
from dsabench.load.target import EndpointName
from dsabench.model.sample import NO_FRAMES, Frames, RequestSample

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Answers(NamedTuple):
    """One row per request, in the order of their indices; n requests, g gaps.

    Times are seconds on the measurement's clock. Rows of failed requests hold zeros, as bench_serving's do.
    """

    ok: Bools
    start_s: Floats
    ttft_s: Floats
    latency_s: Floats
    output_len: Ints
    gaps_s: Floats
    """[g] inter-token latencies, request after request."""
    gap_counts: Ints
    """[n] how many of them each request has."""
    gap_ends_s: Floats
    """[g] when each of them ended."""

    def gaps_of(self, index: int) -> Floats:
        """One request's gaps."""
        end = int(self.gap_counts[: index + 1].sum())
        return self.gaps_s[end - int(self.gap_counts[index]) : end]


def answers_in_columns(
    samples: Sequence[RequestSample], spoken: Sequence[ReplyText | None], endpoint: EndpointName
) -> Answers:
    """Native /generate: a frame of k tokens after the first gives k gaps of a k-th of its distance to the one before.

    OpenAI endpoints: each event with text is one gap, whatever it holds, and the number of tokens is what `usage` says,
    or else what was asked for (serving.py, async_request_sglang_generate and async_request_openai_completions).
    Where the text is known, an answer begins with the first event that has some: half a character has none yet.
    """
    native = endpoint == "generate"
    ok = np.fromiter((sample.error is None for sample in samples), np.bool_, len(samples))
    heard = _heard_native if native else _heard_openai
    rows = [heard(*pair) if pair[0].error is None else NO_FRAMES for pair in zip(samples, spoken, strict=True)]
    sent_s = np.fromiter((sample.sent_s for sample in samples), np.float64, len(samples))
    done_s = np.fromiter((sample.done_s for sample in samples), np.float64, len(samples))
    first_s = np.fromiter((row.at_s[0] if len(row) else np.nan for row in rows), np.float64, len(samples))
    counted = _native_lens(samples, rows) if native else _openai_lens(samples, spoken, endpoint)
    gaps_s, gap_counts, gap_ends_s = _gaps(rows, split=native)
    return Answers(
        ok=ok,
        start_s=sent_s,
        ttft_s=np.where(np.isnan(first_s), 0.0, first_s - sent_s),
        latency_s=np.where(ok, done_s - sent_s, 0.0),
        output_len=counted * ok,
        gaps_s=gaps_s,
        gap_counts=gap_counts,
        gap_ends_s=gap_ends_s,
    )


def _heard_native(sample: RequestSample, spoken: ReplyText | None) -> Frames:
    """Frames from the first one with text on, which takes the tokens of the silent ones before it."""
    frames = sample.frames
    if spoken is None or not spoken.pieces:
        return frames
    silent = int(np.searchsorted(frames.at_s, spoken.pieces[0].at_s))
    if not 0 < silent < len(frames):
        return frames
    tokens = frames.tokens[silent:].copy()
    tokens[0] += frames.tokens[:silent].sum()
    return Frames(frames.at_s[silent:], tokens)


def _heard_openai(sample: RequestSample, spoken: ReplyText | None) -> Frames:
    """One frame per event with text."""
    if spoken is None:
        return sample.frames
    at_s = np.fromiter((piece.at_s for piece in spoken.pieces), np.float64, len(spoken.pieces))
    return Frames(at_s, np.ones(len(at_s), np.int32))


def _native_lens(samples: Sequence[RequestSample], rows: Sequence[Frames]) -> Ints:
    """An answer without any token keeps what was asked for."""
    frames = np.fromiter(map(len, rows), np.int64, len(rows))
    asked = np.fromiter((sample.output_len_asked for sample in samples), np.int64, len(rows))
    tokens = np.concatenate([NO_FRAMES.tokens, *(row.tokens for row in rows)])
    told = np.bincount(np.repeat(np.arange(len(rows)), frames), weights=tokens, minlength=len(rows))
    return np.where(frames > 0, told.astype(np.int64), asked)


def _openai_lens(samples: Sequence[RequestSample], spoken: Sequence[ReplyText | None], endpoint: EndpointName) -> Ints:
    """Of /v1/completions only usage in an event with text counts, of chat any."""
    lens = np.fromiter((sample.output_len_asked for sample in samples), np.int64, len(samples))
    for index, words in enumerate(spoken):
        if words is None:
            continue
        reported = words.reported_tokens if endpoint == "chat" else words.reported_beside_text
        if reported is not None:
            lens[index] = reported
    return lens


def _gaps(rows: Sequence[Frames], *, split: bool) -> tuple[Floats, Ints, Floats]:
    """All at once over the frames of all requests: no Python per frame."""
    frames = np.fromiter(map(len, rows), np.int64, len(rows))
    if not frames.sum():
        return np.zeros(0, np.float64), np.zeros(len(rows), np.int64), np.zeros(0, np.float64)
    times = np.concatenate([row.at_s for row in rows])
    later = np.ones(len(times), np.bool_)
    later[(np.cumsum(frames) - frames)[frames > 0]] = False
    distances = np.diff(times, prepend=times[0])[later]
    counts = np.maximum(frames - 1, 0)
    if not split:
        return distances, counts, times[later]
    shares = np.concatenate([row.tokens for row in rows])[later]
    owner = np.repeat(np.arange(len(rows)), counts)
    tokens = np.bincount(owner, weights=shares, minlength=len(rows)).astype(np.int64)
    return np.repeat(distances / shares, shares), tokens, np.repeat(times[later], shares)
