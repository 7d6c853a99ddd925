"""Samples → the columns that bench_serving's formulas read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsabench.model.sample import RequestSample

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Words:
    """What a reply said beyond its frames. `text` is needed for retokenised counts and `--output-details` only."""

    text: str = ""
    chunks: tuple[str, ...] = ()
    """OpenAI endpoints: the text of each frame after the first."""
    reported_tokens: int | None = None
    """OpenAI endpoints: `usage.completion_tokens`, where a frame that bench_serving reads carries it."""
    silent_frames: int = 0
    """Frames at the head that brought tokens but left the text empty (half a character); bench_serving waits on."""
    cached_tokens_details: dict[str, int | str | None] | None = None


@dataclass(frozen=True, slots=True)
class Answers:
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

    def gaps_of(self, index: int) -> Floats:
        """One request's gaps."""
        end = int(self.gap_counts[: index + 1].sum())
        return self.gaps_s[end - int(self.gap_counts[index]) : end]


def answers_in_columns(
    samples: Sequence[RequestSample], words: Sequence[Words] | None = None, *, native: bool
) -> Answers:
    """Native /generate: a frame of k tokens after the first gives k gaps of a k-th of its distance to the one before.

    OpenAI endpoints: each frame with text is one gap, whatever it holds, and the number of tokens is what `usage` says,
    or else what was asked for (serving.py, async_request_sglang_generate and async_request_openai_completions).
    """
    ok = np.fromiter((sample.error is None for sample in samples), np.bool_, len(samples))
    told = [None] * len(samples) if words is None else words
    heads = [word.silent_frames if word is not None else 0 for word in told]
    at_s = [s.frames.at_s[h:] if good else _NO_TIMES for s, h, good in zip(samples, heads, ok.tolist(), strict=True)]
    tokens = [
        _heard(sample, head) if good else _NO_TOKENS
        for sample, head, good in zip(samples, heads, ok.tolist(), strict=True)
    ]
    sent_s = np.fromiter((sample.sent_s for sample in samples), np.float64, len(samples))
    done_s = np.fromiter((sample.done_s for sample in samples), np.float64, len(samples))
    first_s = np.fromiter((a[0] if len(a) else np.nan for a in at_s), np.float64, len(samples))
    gaps_s, gap_counts = _gaps(at_s, tokens, split=native)
    return Answers(
        ok=ok,
        start_s=sent_s,
        ttft_s=np.where(np.isnan(first_s), 0.0, first_s - sent_s),
        latency_s=np.where(ok, done_s - sent_s, 0.0),
        output_len=_output_lens(samples, told, tokens, native=native) * ok,
        gaps_s=gaps_s,
        gap_counts=gap_counts,
    )


_NO_TIMES: Floats = np.zeros(0, np.float64)
_NO_TOKENS: npt.NDArray[np.int32] = np.zeros(0, np.int32)


def _heard(sample: RequestSample, head: int) -> npt.NDArray[np.int32]:
    """Tokens per frame from the first frame with text on, which takes those of the silent ones before it."""
    tokens = sample.frames.tokens
    if not head:
        return tokens
    heard = tokens[head:].copy()
    if len(heard):
        heard[0] += tokens[:head].sum()
    return heard


def _output_lens(
    samples: Sequence[RequestSample],
    told: Sequence[Words | None],
    tokens: Sequence[npt.NDArray[np.int32]],
    *,
    native: bool,
) -> Ints:
    if native:  # an answer without any text keeps what was asked for
        counted = (int(t.sum()) if len(t) else s.output_len_asked for s, t in zip(samples, tokens, strict=True))
        return np.fromiter(counted, np.int64, len(samples))
    reported = (
        sample.output_len_asked if word is None or word.reported_tokens is None else word.reported_tokens
        for sample, word in zip(samples, told, strict=True)
    )
    return np.fromiter(reported, np.int64, len(samples))


def _gaps(at_s: Sequence[Floats], tokens: Sequence[npt.NDArray[np.int32]], *, split: bool) -> tuple[Floats, Ints]:
    """All at once over the frames of all requests: no Python per frame."""
    frames = np.fromiter((len(times) for times in at_s), np.int64, len(at_s))
    if not frames.sum():
        return _NO_TIMES, np.zeros(len(at_s), np.int64)
    times = np.concatenate(at_s)
    ends = np.cumsum(frames)
    starts = (ends - frames)[frames > 0]
    later = np.ones(len(times), np.bool_)
    later[starts] = False
    distances = np.diff(times, prepend=times[0])[later]
    owner = np.repeat(np.arange(len(at_s)), np.maximum(frames - 1, 0))
    if not split:
        return distances, np.bincount(owner, minlength=len(at_s)).astype(np.int64)
    shares = np.concatenate(tokens)[later]
    counts = np.bincount(owner, weights=shares, minlength=len(at_s)).astype(np.int64)
    return np.repeat(distances / shares, shares), counts
