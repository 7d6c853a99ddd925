"""One bench run: its options and samples, and everything that is computed from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from dsabench.load.bench_serving.metrics import (
    AnswerColumns,
    BenchMetrics,
    Floats,
    GoodputReport,
    PrefixCacheReport,
    answer_columns,
    as_bench_serving,
    compute_goodput,
    compute_metrics,
    counts_differ,
    report_cache,
    split_by_text,
)
from dsabench.load.judge.steady_state import NoSteadyState, in_flight, steady_window
from dsabench.load.read.json_stream import ReplyText
from dsabench.load.requests import ENDPOINTS
from dsabench.model.dataset import DatasetName
from dsabench.model.sample import RequestSample
from dsabench.stats.percentiles import percentile


class _BenchShape(NamedTuple):
    """How requests were sent, as the flags say it."""

    is_paced_by_data: bool
    arrivals: str
    request_rate: float | None
    max_concurrency: int | None


class LatencyTail(NamedTuple):
    """Of one latency, milliseconds; None from too few observations."""

    mean: float | None
    median: float | None
    p99: float | None


class SteadyReport(NamedTuple):
    """Requests count where they were sent, tokens and gaps where they arrived, completions where they ended."""

    start_s: float
    duration_s: float
    completed: int
    concurrency: float
    request_throughput: float
    output_throughput: float
    latencies: dict[str, LatencyTail]


def steady_of(
    answers: AnswerColumns, samples: Sequence[RequestSample], shape: _BenchShape
) -> SteadyReport | NoSteadyState:
    """The figures, or why there is no steady state."""
    window = steady_window(samples, shape)
    if isinstance(window, NoSteadyState):
        return window
    start_s, done_s, ok = answers.start_s, answers.start_s + answers.latency_s, answers.ok
    first_s = start_s + answers.ttft_s
    sent = ok & window.holds(start_s)
    several = sent & (answers.output_len > answers.first_len)
    later = window.holds(answers.gap_ends_s)
    tokens = int(later.sum()) + int(answers.first_len[ok & window.holds(first_s)].sum())
    ended = int((ok & window.holds(done_s)).sum())
    left_s = np.fromiter((sample.done_s for sample in samples), np.float64, len(samples))  # of failed ones too
    return SteadyReport(
        start_s=window.start_s,
        duration_s=window.duration_s,
        completed=ended,
        concurrency=in_flight(window, start_s, left_s),
        request_throughput=ended / window.duration_s,
        output_throughput=tokens / window.duration_s,
        latencies={
            "ttft": tail_of(answers.ttft_s[sent]),
            "tpot": tail_of((done_s - first_s)[several] / (answers.output_len - answers.first_len)[several]),
            "itl": tail_of(answers.gaps_s[later]),
            "e2e_latency": tail_of(answers.latency_s[sent]),
        },
    )


def tail_of(values_s: Floats) -> LatencyTail:
    """Of values in seconds."""
    mean_ms = float(values_s.mean()) * 1e3 if len(values_s) else None
    median_s, p99_s = percentile(values_s, 0.5), percentile(values_s, 0.99)
    return LatencyTail(mean_ms, None if median_s is None else median_s * 1e3, None if p99_s is None else p99_s * 1e3)


def from_schedule(answers: AnswerColumns, samples: Sequence[RequestSample]) -> dict[str, LatencyTail]:
    """`queue_wait` from due to sent, `ttft` and `e2e_latency` from due; of requests that ended well."""
    due_s = np.fromiter((sample.scheduled_s for sample in samples), np.float64, len(samples))[answers.ok]
    wait_s = answers.start_s[answers.ok] - due_s
    return {
        "queue_wait": tail_of(wait_s),
        "ttft": tail_of(answers.ttft_s[answers.ok] + wait_s),
        "e2e_latency": tail_of(answers.latency_s[answers.ok] + wait_s),
    }


class BenchOptions(NamedTuple):
    """The arguments that bench_serving repeats in its record."""

    backend: str
    dataset_name: DatasetName
    request_rate: float
    """Requests per second; infinite for a closed loop."""
    max_concurrency: int | None
    tag: str | None = None
    sharegpt_output_len: int | None = None
    random_input_len: int = 1024
    random_output_len: int = 1024
    random_range_ratio: float = 0.0
    from_trace: bool = False
    """The data said when each request is sent, or `--use-trace-timestamps` says so."""

    @property
    def shown_rate(self) -> float | str:
        """The rate as it is printed and written."""
        return "trace" if self.from_trace else self.request_rate


class BenchReport(NamedTuple):
    """One run: the samples and what was computed from them."""

    options: BenchOptions
    duration_s: float
    samples: Sequence[RequestSample]
    spoken: Sequence[ReplyText | None]
    answers: AnswerColumns
    metrics: BenchMetrics
    as_bench_serving: BenchMetrics | None = None
    """The same by bench_serving's counts, where they are others; see `AnswerColumns`."""
    goodput: GoodputReport | None = None
    cache: PrefixCacheReport | None = None
    accept_length: float | None = None
    """What the server tells of its whole life (`avg_spec_accept_length`), as in bench_serving."""
    server_info: object = None
    from_schedule: Mapping[str, LatencyTail] = MappingProxyType({})
    steady: SteadyReport | NoSteadyState | None = None
    """None where it was not looked for."""


CountTokens = Callable[[str], int]
"""Tokens of a text, without special ones."""

_SPLIT_BY_TEXT = frozenset({"sglang-oai", "sglang-oai-chat"})


class BenchData(NamedTuple):
    """What a run left, one row per request."""

    samples: Sequence[RequestSample]
    spoken: Sequence[ReplyText | None]
    duration_s: float
    server_info: object = None
    """What the server told of itself after it."""


class ReportOptions(NamedTuple):
    """What is computed only when it is asked for."""

    count_tokens: CountTokens | None
    """Without it (no tokenizer) the retokenised totals are 0, as in sglang's Rust client."""
    goodput_slos_ms: Mapping[str, float] | None = None
    cache_report: bool = False


def report_run(options: BenchOptions, data: BenchData, wanted: ReportOptions) -> BenchReport:
    """Everything that is computed after a run."""
    samples, spoken, duration_s, server_info = data
    count = wanted.count_tokens
    answers = answer_columns(samples, spoken, ENDPOINTS[options.backend])
    accept_length = server_accept_length(server_info) if "sglang" in options.backend else None
    gaps_s = None
    if count is not None and accept_length and options.backend in _SPLIT_BY_TEXT:
        ended = [words for sample, words in zip(samples, spoken, strict=True) if sample.error is None]
        gaps_s = split_by_text(answers, [count(piece.text) for words in ended if words for piece in words.pieces[1:]])
    texts = [words.text if words else "" for words in spoken]
    retokenized = [0 if count is None or not text else count(text) for text in texts]

    def metrics_of(columns: AnswerColumns) -> BenchMetrics:
        return compute_metrics(
            columns,
            duration_s,
            input_lens=np.fromiter((sample.input_len for sample in samples), np.int64, len(samples)),
            retokenized=np.array(retokenized, np.int64),
            gaps_s=gaps_s,
        )

    return BenchReport(
        options=options,
        duration_s=duration_s,
        samples=samples,
        spoken=spoken,
        answers=answers,
        metrics=metrics_of(answers),
        as_bench_serving=metrics_of(as_bench_serving(answers)) if counts_differ(answers) else None,
        goodput=compute_goodput(answers, wanted.goodput_slos_ms, duration_s) if wanted.goodput_slos_ms else None,
        cache=report_cache(samples, spoken) if wanted.cache_report else None,
        accept_length=accept_length,
        server_info=server_info,
        from_schedule=from_schedule(answers, samples),
        steady=steady_of(answers, samples, _shape(options)),
    )


def _shape(options: BenchOptions) -> _BenchShape:
    rate = None if math.isinf(options.request_rate) else options.request_rate
    return _BenchShape(options.from_trace, "poisson", rate, options.max_concurrency)


def server_accept_length(server_info: object) -> float | None:
    """`avg_spec_accept_length` of the first (behind a router: the first decode server's) scheduler."""
    match server_info:
        case {"decode": [first, *_]}:
            return server_accept_length(first)
        case {"internal_states": [{"avg_spec_accept_length": int() | float() as accepted}, *_]}:
            return float(accepted)
    return None
