"""The printed "Serving Benchmark Result" (serving.py:1653-1812): the same lines, order and widths."""

from __future__ import annotations

from collections.abc import Iterator

from dsabench.load.bench_serving.cache import CacheReport
from dsabench.load.bench_serving.figures import Figures, Goodput, Spread
from dsabench.load.bench_serving.report import Report

_WIDTH = 50


def result_lines(report: Report) -> Iterator[str]:
    """The block, from the blank line before it to the rule that closes it."""
    figures = report.figures
    yield ""
    yield _rule(" Serving Benchmark Result ", "=")
    yield from _head(report)
    yield from _throughputs(figures)
    if report.accept_length:
        yield _figure("Accept length:", report.accept_length)
    if report.goodput is not None:
        yield from _goodput(report.goodput)
    yield _rule("End-to-End Latency", "-")
    yield from _spread("E2E Latency", figures.e2e)
    yield _rule("Time to First Token", "-")
    yield from _spread("TTFT", figures.ttft)
    yield _rule("Time per Output Token (excl. 1st token)", "-")
    yield from _spread("TPOT", figures.tpot)
    yield _rule("Inter-Token Latency", "-")
    yield from _spread("ITL", figures.itl)
    yield _figure("Max ITL (ms):", figures.itl.max)
    if report.cache is not None:
        yield from _cache(report.cache)
    yield "=" * _WIDTH


def _head(report: Report) -> Iterator[str]:
    figures = report.figures
    yield _entry("Backend:", report.order.backend)
    yield _entry("Traffic request rate:", report.order.shown_rate)
    yield _entry("Max request concurrency:", report.order.max_concurrency or "not set")
    yield _entry("Successful requests:", figures.completed)
    if figures.completed < len(report.samples):  # bench_serving never says it; without failures the block is its own
        yield _entry("Failed requests:", len(report.samples) - figures.completed)
    yield _figure("Benchmark duration (s):", report.duration_s)
    yield _entry("Total input tokens:", figures.total_input)
    yield _entry("Total input text tokens:", figures.total_input)
    yield _entry("Total generated tokens:", figures.total_output)
    yield _entry("Total generated tokens (retokenized):", figures.total_output_retokenized)


def _throughputs(figures: Figures) -> Iterator[str]:
    yield _figure("Request throughput (req/s):", figures.request_throughput)
    yield _figure("Input token throughput (tok/s):", figures.input_throughput)
    yield _figure("Output token throughput (tok/s):", figures.output_throughput)
    yield _figure("Peak output token throughput (tok/s):", figures.max_output_tokens_per_s)
    yield _entry("Peak concurrent requests:", figures.max_concurrent_requests)
    yield _figure("Total token throughput (tok/s):", figures.total_throughput)
    yield _figure("Concurrency:", figures.concurrency)


def _spread(name: str, spread: Spread) -> Iterator[str]:
    shown = {"Mean": spread.mean, "Median": spread.median, "P90": spread.p90, "P95": spread.p95, "P99": spread.p99}
    for label, value in shown.items():
        yield _figure(f"{label} {name} (ms):", value)


def _goodput(goodput: Goodput) -> Iterator[str]:
    yield _rule("Goodput", "-")
    yield _entry("SLOs (ms):", " ".join(f"{name}:{slo_ms:g}" for name, slo_ms in goodput.goodput_slos_ms.items()))
    yield _figure("Request goodput (req/s):", goodput.request_goodput)
    yield _figure("SLO attainment (%):", goodput.slo_attainment * 100)
    for name, share in goodput.slo_attainment_by_metric.items():
        yield _figure(f"{name.upper()} SLO attainment (%):", share * 100)


def _cache(cache: CacheReport) -> Iterator[str]:
    yield _rule("Cache Hit Details", "-")
    yield _entry("Total prompt tokens:", cache.prompt_tokens)
    yield _entry("Total cached tokens:", cache.cached_tokens)
    places = cache.places if cache.cached_tokens else {}
    for name, tokens in places.items():
        yield _entry(f"  {name}:", tokens)
    yield f"{'Cache hit rate:':<40} {cache.hit_rate_pct:.1f}%"
    for name, tokens in places.items():
        yield f"{f'  {name}:':<40} {tokens / cache.cached_tokens * 100:.1f}%"


def _rule(title: str, fill: str) -> str:
    return f"{title:{fill}^{_WIDTH}}"


def _entry(label: str, value: float | str) -> str:
    return f"{label:<40} {value:<10}"


def _figure(label: str, value: float) -> str:
    return f"{label:<40} {value:<10.2f}"
