"""What a run prints and appends to its output file, as bench_serving does (serving.py:1653-1946), and what it has not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from dsabench.errors import StoreError
from dsabench.load.bench_serving.metrics import BenchMetrics, GoodputReport, LatencyStatistics, PrefixCacheReport
from dsabench.load.bench_serving.report import BenchReport, LatencyTail, SteadyReport
from dsabench.load.judge.metrics import MetricValue
from dsabench.load.judge.steady_state import NoSteadyState

_WIDTH = 50
_SHOWN = {
    "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e_latency": "E2E Latency", "queue_wait": "Queue Wait",
}  # fmt: skip


def result_lines(report: BenchReport) -> Iterator[str]:
    """The block, from the blank line before it to the rule that closes it."""
    figures = report.metrics
    yield ""
    yield _rule(" Serving Benchmark Result ", "=")
    yield from _head(report)
    yield from _throughputs(figures)
    if report.accept_length:
        yield _figure("Accept length:", report.accept_length)
    if report.goodput is not None:
        yield from _goodput_lines(report.goodput)
    yield _rule("End-to-End Latency", "-")
    yield from _spread_lines("E2E Latency", figures.e2e)
    yield _rule("Time to First Token", "-")
    yield from _spread_lines("TTFT", figures.ttft)
    yield _rule("Time per Output Token (excl. 1st token)", "-")
    yield from _spread_lines("TPOT", figures.tpot)
    yield _rule("Inter-Token Latency", "-")
    yield from _spread_lines("ITL", figures.itl)
    yield _figure("Max ITL (ms):", figures.itl.max)
    if report.cache is not None:
        yield from _cache_lines(report.cache)
    yield "=" * _WIDTH


def _head(report: BenchReport) -> Iterator[str]:
    figures = report.metrics
    yield _entry("Backend:", report.options.backend)
    yield _entry("Traffic request rate:", report.options.shown_rate)
    yield _entry("Max request concurrency:", report.options.max_concurrency or "not set")
    yield _entry("Successful requests:", figures.completed)
    if figures.completed < len(report.samples):  # bench_serving never says it; without failures the block is its own
        yield _entry("Failed requests:", len(report.samples) - figures.completed)
    yield _figure("Benchmark duration (s):", report.duration_s)
    yield _entry("Total input tokens:", figures.total_input)
    yield _entry("Total input text tokens:", figures.total_input)
    yield _entry("Total generated tokens:", figures.total_output)
    yield _entry("Total generated tokens (retokenized):", figures.total_output_retokenized)


def _throughputs(figures: BenchMetrics) -> Iterator[str]:
    yield _figure("Request throughput (req/s):", figures.request_throughput)
    yield _figure("Input token throughput (tok/s):", figures.input_throughput)
    yield _figure("Output token throughput (tok/s):", figures.output_throughput)
    yield _figure("Peak output token throughput (tok/s):", figures.max_output_tokens_per_s)
    yield _entry("Peak concurrent requests:", figures.max_concurrent_requests)
    yield _figure("Total token throughput (tok/s):", figures.total_throughput)
    yield _figure("Concurrency:", figures.concurrency)


def _spread_lines(name: str, spread: LatencyStatistics) -> Iterator[str]:
    shown = {"Mean": spread.mean, "Median": spread.median, "P90": spread.p90, "P95": spread.p95, "P99": spread.p99}
    for label, value in shown.items():
        yield _figure(f"{label} {name} (ms):", value)


def _goodput_lines(goodput: GoodputReport) -> Iterator[str]:
    yield _rule("Goodput", "-")
    yield _entry("SLOs (ms):", " ".join(f"{name}:{slo_ms:g}" for name, slo_ms in goodput.goodput_slos_ms.items()))
    yield _figure("Request goodput (req/s):", goodput.request_goodput)
    for name, share in {"": goodput.slo_attainment, **goodput.slo_attainment_by_metric}.items():
        label = f"{name.upper()} SLO attainment (%):".lstrip()
        yield _figure(label, None if share is None else share * 100)


def _cache_lines(cache: PrefixCacheReport) -> Iterator[str]:
    yield _rule("Cache Hit Details", "-")
    yield _entry("Total prompt tokens:", cache.prompt_tokens)
    yield _entry("Total cached tokens:", cache.cached_tokens)
    places = cache.places if cache.cached_tokens else {}
    for name, tokens in places.items():
        yield _entry(f"  {name}:", tokens)
    yield f"{'Cache hit rate:':<40} {cache.hit_rate_pct:.1f}%"
    for name, tokens in places.items():
        yield f"{f'  {name}:':<40} {tokens / cache.cached_tokens * 100:.1f}%"


def other_count_lines(report: BenchReport) -> Iterator[str]:
    """A block of its own: what bench_serving says where it counts other tokens than came."""
    if report.as_bench_serving is None:
        return
    yield _rule(" As bench_serving Counts ", "=")
    own, theirs = (list(_counted_lines(one)) for one in (report.metrics, report.as_bench_serving))
    yield from (line for line, mine in zip(theirs, own, strict=True) if line != mine)


def _counted_lines(metrics: BenchMetrics) -> Iterator[str]:
    yield _entry("Total generated tokens:", metrics.total_output)
    yield from _throughputs(metrics)
    yield from _spread_lines("TPOT", metrics.tpot)


def _rule(title: str, fill: str) -> str:
    return f"{title:{fill}^{_WIDTH}}"


def _entry(label: str, value: float | str) -> str:
    return f"{label:<40} {value:<10}"


def _figure(label: str, value: float | None) -> str:
    return _entry(label, "not observed") if value is None else f"{label:<40} {value:<10.2f}"


def schedule_lines(latencies: Mapping[str, LatencyTail]) -> Iterator[str]:
    """A block of its own."""
    yield f"{' Counted From Schedule ':=^{_WIDTH}}"
    yield from _tail_lines(latencies)


def steady_lines(steady: SteadyReport | NoSteadyState) -> Iterator[str]:
    """A block of its own, in the form of the one before it."""
    yield f"{' Steady State ':=^{_WIDTH}}"
    if isinstance(steady, NoSteadyState):
        yield f"none: {steady.reason}"
    else:
        yield f"{'From, for (s):':<40} {steady.start_s:.2f}, {steady.duration_s:.2f}"
        yield f"{'Concurrency:':<40} {steady.concurrency:<10.2f}"
        yield f"{'Request throughput (req/s):':<40} {steady.request_throughput:<10.2f}"
        yield f"{'Output token throughput (tok/s):':<40} {steady.output_throughput:<10.2f}"
        yield from _tail_lines(steady.latencies)
    yield "=" * _WIDTH


def _tail_keys(latencies: Mapping[str, LatencyTail]) -> dict[str, float | None]:
    return {f"{key}_{name}_ms": ms for name, tail in latencies.items() for key, ms in tail._asdict().items()}


def _tail_lines(latencies: Mapping[str, LatencyTail]) -> Iterator[str]:
    """As lines of a block, less those with too few observations."""
    for name, tail in latencies.items():
        for label, ms in zip(("Mean", "Median", "P99"), tail, strict=True):
            if ms is not None:
                yield f"{f'{label} {_SHOWN[name]} (ms):':<40} {ms:<10.2f}"


Json = Mapping[str, object]


class ClientCost(NamedTuple):
    """What the load generator itself used."""

    cpu_s: float
    """CPU of the process and all its children, from its start until the line is written."""
    startup_cpu_s: float
    """The part of it until the program was loaded and its arguments read, before the first request to the server."""
    phases_cpu_s: Mapping[str, float]
    """CPU by phase; see `PhaseClock`. Writing the line comes after the last."""
    phases_s: Mapping[str, float]
    """Wall time by phase."""
    frames: int
    """Frames with new tokens, without those of the warm-up."""
    saturated: bool
    reason: str | None = None
    """Why the numbers describe the client and not the server."""
    lag_p99_ms: float | None = None
    """How late its event loop ran a timer."""
    late_ms: float | None = None
    """How late what came was stamped, on average."""
    core_wait_share: float | None = None
    """Of the time that its thread could have run and had no core."""
    send_lag_max_ms: float | None = None
    backlog_ms: float | None = None
    """Mean time that bytes lay in a socket before they were read; None where too few looks were taken."""
    gc_pauses: int | None = None
    gc_max_ms: float | None = None


def phase_line(client: ClientCost) -> str:
    """Where the time went."""
    phases = ("start", "wait", "draw", "warm_up", "connect", "load", "read", "report")
    told = ", ".join(
        f"{name.replace('_', '-')} {client.phases_s[name]:.2f}" for name in phases if name in client.phases_s
    )
    return f"Time (s): {told}; CPU of the client {sum(client.phases_cpu_s.values()):.2f}"


def record_of(report: BenchReport, *, details: bool, machine: Mapping[str, MetricValue] | None = None) -> Json:
    """bench_serving's keys in its order, then those of ours that it lacks."""
    options, keys = report.options, metric_keys(report.metrics, report.accept_length)
    record: dict[str, object] = {
        "tag": options.tag,
        "backend": options.backend,
        "dataset_name": options.dataset_name,
        "request_rate": options.shown_rate,
        "max_concurrency": options.max_concurrency,
        "sharegpt_output_len": options.sharegpt_output_len,
        "random_input_len": options.random_input_len,
        "random_output_len": options.random_output_len,
        "random_range_ratio": options.random_range_ratio,
        "server_info": report.server_info,
        "duration": report.duration_s,
        **keys,
    }
    if report.goodput is not None:
        record |= report.goodput._asdict()
    if report.cache is not None:
        record["cache_report"] = report.cache.as_json()
    if details:
        record |= _details(report)
    return record | _ours(report) | {"machine": {name: figure.value for name, figure in (machine or {}).items()}}


def metric_keys(metrics: BenchMetrics, accept_length: float | None) -> dict[str, object]:
    """The keys that are computed of the answers, in bench_serving's options."""
    return {
        "completed": metrics.completed,
        "total_input_tokens": metrics.total_input,
        "total_input_text_tokens": metrics.total_input,
        "total_input_vision_tokens": 0,
        "total_output_tokens": metrics.total_output,
        "total_output_tokens_retokenized": metrics.total_output_retokenized,
        "request_throughput": metrics.request_throughput,
        "input_throughput": metrics.input_throughput,
        "output_throughput": metrics.output_throughput,
        "total_throughput": metrics.total_throughput,
        **_spread_keys("e2e_latency", metrics.e2e),
        **_spread_keys("ttft", metrics.ttft),
        **_spread_keys("tpot", metrics.tpot),
        **_spread_keys("itl", metrics.itl),
        "concurrency": metrics.concurrency,
        "accept_length": accept_length,
        "max_output_tokens_per_s": metrics.max_output_tokens_per_s,
        "max_concurrent_requests": metrics.max_concurrent_requests,
    }


def append_record(path: Path, record: Json, client: ClientCost) -> None:
    """Append one line. Infinity and NaN are written as Python's json writes them, which bench_serving's readers expect.

    Raises:
        StoreError: the file cannot be written.

    """
    line = json.dumps({**record, "client": client._asdict()}) + "\n"
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error


def _spread_keys(name: str, spread: LatencyStatistics) -> dict[str, float | None]:
    figures = spread._asdict()
    del figures["max"]
    return {f"{figure}_{name}_ms": value for figure, value in figures.items()}


def _details(report: BenchReport) -> dict[str, object]:
    """Columns per request. A failed one has no tokens, and its error is one line where bench_serving has a traceback."""
    samples, answers = report.samples, report.answers
    columns: dict[str, object] = {
        "input_lens": [sample.input_tokens or sample.input_len for sample in samples],
        "output_lens": answers.output_len.tolist(),
        "ttfts": answers.ttft_s.tolist(),
        "itls": [answers.gaps_of(index).tolist() for index in range(len(samples))],
        "generated_texts": [words.text if words else "" for words in report.spoken],
        "errors": [sample.error or "" for sample in samples],
    }
    if report.cache is not None:
        columns["cached_tokens"] = [sample.cached_tokens or 0 for sample in samples]
        columns["cached_tokens_details"] = [words.cached_tokens_details if words else None for words in report.spoken]
    return columns


def _ours(report: BenchReport) -> dict[str, object]:
    accepted = [s.accept_length for s in report.samples if s.error is None and s.accept_length is not None]
    return {
        "max_itl_ms": report.metrics.itl.max,
        "failed": len(report.samples) - report.metrics.completed,
        "accept_length_of_requests": sum(accepted) / len(accepted) if accepted else None,
        "from_schedule": _tail_keys(report.from_schedule),
        "steady_state": _steady(report.steady),
        "bench_serving": _other_counts(report),
        **_attainment(report),
    }


def _other_counts(report: BenchReport) -> dict[str, object] | None:
    """The keys whose values bench_serving gives otherwise, with its values: 0 where it observed nothing."""
    if report.as_bench_serving is None:
        return None
    own, theirs = (metric_keys(one, None) for one in (report.metrics, report.as_bench_serving))
    return {name: value or 0.0 for name, value in theirs.items() if value != own[name]}


def _attainment(report: BenchReport) -> dict[str, object]:
    """Wilson's 95 % interval of the share that met every SLO; it takes requests as independent."""
    if report.goodput is None or report.goodput.slo_attainment is None:
        return {}
    from dsabench.stats.intervals import wilson  # noqa: PLC0415  (only a run with SLOs needs it)

    sent = len(report.samples)
    interval = wilson(report.goodput.slo_attainment * sent, sent)
    return {} if interval is None else {"slo_attainment_interval": [interval.low, interval.high]}


def _steady(steady: SteadyReport | NoSteadyState | None) -> dict[str, float | int | None] | dict[str, str] | None:
    if steady is None:
        return None
    if isinstance(steady, NoSteadyState):
        return {"none": steady.reason}
    values = steady._asdict()
    return values | _tail_keys(values.pop("latencies"))
