"""The line that bench_serving appends to its output file (serving.py:1814-1946), and `client` beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dsabench.errors import StoreError
from dsabench.load.bench_serving.figures import Spread
from dsabench.load.bench_serving.report import Report
from dsabench.load.bench_serving.steady import Steady, told
from dsabench.load.judge.metrics import MetricValue
from dsabench.load.judge.steady_state import NoSteadyState

Json = Mapping[str, object]


class ClientCost(NamedTuple):
    """What the load generator itself used."""

    cpu_s: float
    """CPU of the process and all its children, from its start until the line is written."""
    startup_cpu_s: float
    """The part of it until the program was loaded and its arguments read, before the first request to the server."""
    frames: int
    """Frames with new tokens, without those of the warm-up."""
    saturated: bool
    reason: str | None = None
    """Why the numbers describe the client and not the server."""
    lag_p99_ms: float | None = None
    """How late its event loop ran a timer."""
    send_lag_max_ms: float | None = None
    backlog_ms: float | None = None
    """Mean time that bytes lay in a socket before they were read; None where too few looks were taken."""
    gc_pauses: int | None = None
    gc_max_ms: float | None = None


def record_of(report: Report, *, details: bool, machine: Mapping[str, MetricValue] | None = None) -> Json:
    """bench_serving's keys in its order, then those of ours that it lacks."""
    order, figures = report.order, report.figures
    record: dict[str, object] = {
        "tag": order.tag,
        "backend": order.backend,
        "dataset_name": order.dataset_name,
        "request_rate": order.shown_rate,
        "max_concurrency": order.max_concurrency,
        "sharegpt_output_len": order.sharegpt_output_len,
        "random_input_len": order.random_input_len,
        "random_output_len": order.random_output_len,
        "random_range_ratio": order.random_range_ratio,
        "server_info": report.server_info,
        "duration": report.duration_s,
        "completed": figures.completed,
        "total_input_tokens": figures.total_input,
        "total_input_text_tokens": figures.total_input,
        "total_input_vision_tokens": 0,
        "total_output_tokens": figures.total_output,
        "total_output_tokens_retokenized": figures.total_output_retokenized,
        "request_throughput": figures.request_throughput,
        "input_throughput": figures.input_throughput,
        "output_throughput": figures.output_throughput,
        "total_throughput": figures.total_throughput,
        **_spread("e2e_latency", figures.e2e),
        **_spread("ttft", figures.ttft),
        **_spread("tpot", figures.tpot),
        **_spread("itl", figures.itl),
        "concurrency": figures.concurrency,
        "accept_length": report.accept_length,
        "max_output_tokens_per_s": figures.max_output_tokens_per_s,
        "max_concurrent_requests": figures.max_concurrent_requests,
    }
    if report.goodput is not None:
        record |= report.goodput._asdict()
    if report.cache is not None:
        record["cache_report"] = report.cache.as_json()
    if details:
        record |= _details(report)
    return record | _ours(report) | {"machine": {name: figure.value for name, figure in (machine or {}).items()}}


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


def _spread(name: str, spread: Spread) -> dict[str, float]:
    figures = spread._asdict()
    del figures["max"]
    return {f"{figure}_{name}_ms": value for figure, value in figures.items()}


def _details(report: Report) -> dict[str, object]:
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


def _ours(report: Report) -> dict[str, object]:
    accepted = [s.accept_length for s in report.samples if s.error is None and s.accept_length is not None]
    return {
        "max_itl_ms": report.figures.itl.max,
        "failed": len(report.samples) - report.figures.completed,
        "accept_length_of_requests": sum(accepted) / len(accepted) if accepted else None,
        "from_schedule": told(report.from_schedule),
        "steady_state": _steady(report.steady),
        **_attainment(report),
    }


def _attainment(report: Report) -> dict[str, object]:
    """Wilson's 95 % interval of the share that met every SLO; it takes requests as independent."""
    if report.goodput is None:
        return {}
    from dsabench.stats.intervals import wilson  # noqa: PLC0415  (only a run with SLOs needs it)

    sent = len(report.samples)
    interval = wilson(report.goodput.slo_attainment * sent, sent)
    return {} if interval is None else {"slo_attainment_interval": [interval.low, interval.high]}


def _steady(steady: Steady | NoSteadyState | None) -> dict[str, float | int | None] | dict[str, str] | None:
    if steady is None:
        return None
    return {"none": steady.reason} if isinstance(steady, NoSteadyState) else steady.as_json()
