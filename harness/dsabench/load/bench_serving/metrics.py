"""bench_serving's formulas over columns, to the digit, and its prefix-cache report.

serving.py:1085-1299 (`calculate_metrics`), goodput.py, serving.py:1755-1811 and 1883-1892 (`--cache-report`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsabench.load.read.json_stream import ReplyText
from dsabench.model.sample import NO_FRAMES, EndpointName, Frames, RequestSample

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class AnswerColumns(NamedTuple):
    """One row per request, in the order of their indices; n requests, g gaps.

    Times are seconds on the measurement's clock. Rows of failed requests hold zeros, as bench_serving's do.
    """

    ok: Bools
    start_s: Floats
    ttft_s: Floats
    latency_s: Floats
    output_len: Ints
    """Tokens that came."""
    first_len: Ints
    """Of these, those of the event that the answer began with."""
    asked_len: Ints
    """What bench_serving takes for the tokens of an answer: of an OpenAI answer without usage all that were asked for."""
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


def answer_columns(
    samples: Sequence[RequestSample], spoken: Sequence[ReplyText | None], endpoint: EndpointName
) -> AnswerColumns:
    """Native /generate: a frame of k tokens after the first gives k gaps of a k-th of its distance to the one before.

    OpenAI endpoints: each event with text is one gap, whatever it holds (serving.py, async_request_sglang_generate and
    async_request_openai_completions).
    Where the text is known, an answer begins with the first event that has some: half a character has none yet.
    """
    native = endpoint == "generate"
    ok = np.fromiter((sample.error is None for sample in samples), np.bool_, len(samples))
    frames_of = _frames_of_native if native else _frames_of_openai
    rows = [frames_of(*pair) if pair[0].error is None else NO_FRAMES for pair in zip(samples, spoken, strict=True)]
    sent_s = np.fromiter((sample.sent_s for sample in samples), np.float64, len(samples))
    done_s = np.fromiter((sample.done_s for sample in samples), np.float64, len(samples))
    first_s = np.fromiter((row.at_s[0] if len(row) else np.nan for row in rows), np.float64, len(samples))
    counted = _native_lens(samples, rows) if native else _openai_lens(samples, spoken, endpoint)
    gaps_s, gap_counts, gap_ends_s = _gaps(rows, split=native)
    return AnswerColumns(
        ok=ok,
        start_s=sent_s,
        ttft_s=np.where(np.isnan(first_s), 0.0, first_s - sent_s),
        latency_s=np.where(ok, done_s - sent_s, 0.0),
        output_len=np.fromiter((sample.output_tokens for sample in samples), np.int64, len(samples)) * ok,
        first_len=_first_lens(rows if native else [sample.frames for sample in samples]) * ok,
        asked_len=counted * ok,
        gaps_s=gaps_s,
        gap_counts=gap_counts,
        gap_ends_s=gap_ends_s,
    )


def _frames_of_native(sample: RequestSample, spoken: ReplyText | None) -> Frames:
    """Frames from the first one with text on, which takes the tokens of the silent ones before it."""
    frames = sample.frames
    if spoken is None or spoken.first_at_s is None:
        return frames
    silent = int(np.searchsorted(frames.at_s, spoken.first_at_s))
    if not 0 < silent < len(frames):
        return frames
    tokens = frames.tokens[silent:].copy()
    tokens[0] += frames.tokens[:silent].sum()
    return Frames(frames.at_s[silent:], tokens)


def _frames_of_openai(sample: RequestSample, spoken: ReplyText | None) -> Frames:
    """One frame per event with text."""
    if spoken is None:
        return sample.frames
    at_s = np.fromiter((piece.at_s for piece in spoken.pieces), np.float64, len(spoken.pieces))
    return Frames(at_s, np.ones(len(at_s), np.int32))


def _first_lens(rows: Sequence[Frames]) -> Ints:
    return np.fromiter((row.tokens.item(0) if len(row) else 0 for row in rows), np.int64, len(rows))


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


class LatencyStatistics(NamedTuple):
    """Of one latency, milliseconds; None where nothing was observed."""

    mean: float | None = None
    median: float | None = None
    std: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class BenchMetrics(NamedTuple):
    """Everything that bench_serving reports of a run. Throughputs are per second."""

    completed: int
    total_input: int
    total_output: int
    total_output_retokenized: int
    request_throughput: float
    input_throughput: float
    output_throughput: float
    total_throughput: float
    ttft: LatencyStatistics
    tpot: LatencyStatistics
    itl: LatencyStatistics
    e2e: LatencyStatistics
    concurrency: float
    max_output_tokens_per_s: float
    max_concurrent_requests: int


class GoodputReport(NamedTuple):
    """Requests that met every SLO; the fields are the keys of the record. None: see `compute_goodput`."""

    goodput_slos_ms: dict[str, float]
    request_goodput: float | None
    slo_attainment: float | None
    slo_attainment_by_metric: dict[str, float | None]


def compute_metrics(
    answers: AnswerColumns, duration_s: float, *, input_lens: Ints, retokenized: Ints, gaps_s: Floats | None = None
) -> BenchMetrics:
    """Figures of one run.

    `input_lens` [n] is the dataset's count, `retokenized` [n] the tokens of the text that came back; rows of failed
    requests are ignored. `gaps_s` replaces the answers' gaps where they are split by retokenised text.
    """
    ok = answers.ok
    completed = int(ok.sum())
    total_input, total_output = int(input_lens[ok].sum()), int(answers.output_len[ok].sum())
    latency_s = answers.latency_s[ok]
    peak_tokens, peak_requests = _peaks(answers)
    return BenchMetrics(
        completed=completed,
        total_input=total_input,
        total_output=total_output,
        total_output_retokenized=int(retokenized[ok].sum()),
        request_throughput=completed / duration_s,
        input_throughput=total_input / duration_s,
        output_throughput=total_output / duration_s,
        total_throughput=(total_input + total_output) / duration_s,
        ttft=_spread_ms(answers.ttft_s[ok]),
        tpot=_spread_ms(_tpots_s(answers)[ok & (answers.output_len > answers.first_len)]),
        itl=_spread_ms(answers.gaps_s if gaps_s is None else gaps_s),
        e2e=_spread_ms(latency_s),
        concurrency=float(np.sum(latency_s) / duration_s),
        max_output_tokens_per_s=peak_tokens,
        max_concurrent_requests=peak_requests,
    )


def as_bench_serving(answers: AnswerColumns) -> AnswerColumns:
    """The same answers with the counts that bench_serving makes of them: it takes the first event for one token."""
    return answers._replace(output_len=answers.asked_len, first_len=np.ones_like(answers.first_len))


def counts_differ(answers: AnswerColumns) -> bool:
    """Whether bench_serving would count otherwise."""
    other = (answers.output_len != answers.asked_len) | (answers.first_len != 1)
    return bool((other & answers.ok).any())


def compute_goodput(answers: AnswerColumns, slos_ms: Mapping[str, float], duration_s: float) -> GoodputReport:
    """Shares are of all requests sent; the TPOT of a single-token answer counts as 0.

    Of TPOT there is none where it was not observed of some answer, because all of its tokens came in one event.
    """
    several = answers.output_len > answers.first_len
    observed_ms = {
        "ttft": answers.ttft_s * 1000,
        "tpot": np.where(several, _tpots_s(answers), 0.0) * 1000,
        "e2el": answers.latency_s * 1000,
    }
    met = {name: answers.ok & (observed_ms[name] <= slo_ms) for name, slo_ms in slos_ms.items()}
    sent, good = len(answers.ok), int(np.logical_and.reduce(list(met.values())).sum())
    shares: dict[str, float | None] = {name: int(values.sum()) / sent for name, values in met.items()}
    if "tpot" in shares and (answers.ok & ~several & (answers.output_len > 1)).any():
        return GoodputReport(dict(slos_ms), None, None, shares | {"tpot": None})
    return GoodputReport(dict(slos_ms), good / duration_s, good / sent, shares)


def split_by_text(answers: AnswerColumns, chunk_tokens: Sequence[int]) -> Floats:
    """Gaps of an OpenAI stream under speculative decoding: each split by the tokens of its text (serving.py:1141-1150).

    `chunk_tokens` [g]; a chunk without tokens gives no gap (bench_serving divides by zero there).
    """
    counts = np.asarray(chunk_tokens, np.int64)
    return np.repeat(answers.gaps_s / np.maximum(counts, 1), counts)


def _tpots_s(answers: AnswerColumns) -> Floats:
    tpots_s: Floats = (answers.latency_s - answers.ttft_s) / np.maximum(answers.output_len - answers.first_len, 1)
    return tpots_s


def _spread_ms(values_s: Floats) -> LatencyStatistics:
    if not len(values_s):
        return LatencyStatistics()
    p50, p90, p95, p99 = np.percentile(values_s, [50, 90, 95, 99])  # np.median would import numpy.ma: 20 ms
    figures = (np.mean(values_s), p50, np.std(values_s), p90, p95, p99, np.max(values_s))
    return LatencyStatistics(*(float(value * 1000) for value in figures))


def _peaks(answers: AnswerColumns) -> tuple[float, int]:
    """Most tokens and most requests in one second, seconds counted from the first request's start.

    Requests are in every second that they touch.
    """
    ok = answers.ok
    if not ok.any():
        return 0.0, 0
    start_s, latency_s, counts = answers.start_s[ok], answers.latency_s[ok], answers.gap_counts[ok]
    begin_s = start_s.min()
    seconds = int(np.ceil((start_s + latency_s).max() - begin_s)) + 1
    first_s = start_s + answers.ttft_s[ok]
    sums = np.cumsum(answers.gaps_s)
    before = np.concatenate(([0.0], sums))[np.cumsum(counts) - counts]
    later_s = sums + np.repeat(first_s - before, counts)
    buckets = (np.concatenate((first_s, later_s)) - begin_s).astype(np.int64)
    brought = np.concatenate((answers.first_len[ok], np.ones(len(later_s), np.int64)))
    inside = (buckets >= 0) & (buckets < seconds)
    tokens = np.bincount(buckets[inside], weights=brought[inside], minlength=1)
    changes = np.bincount((start_s - begin_s).astype(np.int64), minlength=seconds + 2)
    changes -= np.bincount(((start_s + latency_s) - begin_s).astype(np.int64) + 1, minlength=seconds + 2)
    return float(tokens.max()), int(np.cumsum(changes)[:seconds].max())


class PrefixCacheReport(NamedTuple):
    """Tokens, of the requests that ended well."""

    prompt_tokens: int
    cached_tokens: int
    device: int | None
    """In the accelerator's memory; None where the server gives no places."""
    host: int | None
    storage: int | None
    """None where there were none."""
    storage_backend: str | None

    @property
    def hit_rate_pct(self) -> float:
        """Share of the prompts' tokens."""
        return self.cached_tokens / self.prompt_tokens * 100 if self.prompt_tokens > 0 else 0.0

    @property
    def places(self) -> dict[str, int]:
        """Shown name → tokens, of the places that the server tells."""
        if self.device is None or self.host is None:
            return {}
        shown = {"Device": self.device, "Host": self.host}
        if self.storage:
            shown[f"Storage ({self.storage_backend})" if self.storage_backend else "Storage"] = self.storage
        return shown

    def as_json(self) -> dict[str, int | float | str | None]:
        """The record's `cache_report`."""
        return {
            "total_prompt_tokens": self.prompt_tokens,
            "total_cached_tokens": self.cached_tokens,
            "cache_hit_rate_pct": round(self.hit_rate_pct, 2),
            "device_cached_tokens": self.device,
            "host_cached_tokens": self.host,
            "storage_cached_tokens": self.storage,
            "storage_backend": self.storage_backend,
        }


def report_cache(samples: Sequence[RequestSample], spoken: Sequence[ReplyText | None]) -> PrefixCacheReport:
    """Sum over the requests; a prompt counts as long as the server says, else as long as it was drawn."""
    ended = [(sample, words) for sample, words in zip(samples, spoken, strict=True) if sample.error is None]
    details = [words.cached_tokens_details for _, words in ended if words and words.cached_tokens_details]
    storage = sum(_count(one.get("storage")) for one in details)
    names = [one.get("storage_backend") for one in details if one.get("storage")]
    return PrefixCacheReport(
        prompt_tokens=sum(sample.input_tokens or sample.input_len for sample, _ in ended),
        cached_tokens=sum(sample.cached_tokens or 0 for sample, _ in ended),
        device=sum(_count(one.get("device")) for one in details) if details else None,
        host=sum(_count(one.get("host")) for one in details) if details else None,
        storage=storage or None,
        storage_backend=str(names[-1]) if names and names[-1] else None,
    )


def _count(value: int | str | None) -> int:
    return value if isinstance(value, int) else 0
