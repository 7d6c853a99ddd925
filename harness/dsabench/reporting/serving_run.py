"""One serving run in the terms that bench_serving prints, wherever it comes from: printed, its JSONL, or our records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.errors import InputError
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.published import PublishedRun
from dsabench.model.record import Measured, Record
from dsabench.model.workload import Workload

Setting = str | float | bool
FIGURES: Mapping[str, str] = {
    "completed": "completed",
    "duration": "duration_s",
    "total_input_tokens": "input_tokens",
    "total_output_tokens": "output_tokens",
    "total_output_tokens_retokenized": "",
    "request_throughput": "request_throughput_req_s",
    "input_throughput": "input_throughput_tok_s",
    "output_throughput": "output_throughput_tok_s",
    "max_output_tokens_per_s": "",
    "max_concurrent_requests": "",
    "total_throughput": "total_throughput_tok_s",
    "concurrency": "concurrency.mean",
    "accept_length": "accept_length.mean",
    **{
        f"{theirs}_{latency}_ms": f"{ours}_ms.{statistic}"
        for latency, ours in (("e2e_latency", "e2e"), ("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"))
        for theirs, statistic in (
            *(("mean", "mean"), ("median", "p50"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99"), ("max", "max")),
        )
    },
}
"""bench_serving's name → the metric of our records; "" where they have none."""

SERVER_SETTINGS = (
    *("tp_size", "dp_size", "ep_size", "pp_size", "nnodes", "enable_dp_attention", "page_size", "context_length"),
    *("max_running_requests", "chunked_prefill_size", "kv_cache_dtype", "quantization", "attention_backend"),
    *("speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"),
)
"""Entries of /server_info that change how fast a server is, and that a command names."""

_ACCEPT_LENGTH = (
    "accept_length: dsabench's is the mean over the run's requests; bench_serving's is the server's average since it "
    "started, over one of its data-parallel ranks"
)


@dataclass(frozen=True, slots=True)
class ServingRun:
    """`settings` and `figures` hold what is known; what is not there was not told."""

    name: str
    settings: Mapping[str, Setting]
    figures: Mapping[str, float]
    published: bool = False
    boots: int = 1
    notes: tuple[str, ...] = ()


def published_run(run: PublishedRun) -> ServingRun:
    """A printed run."""
    load, hardware, served = run.load, run.hardware, run.runtime
    settings = {
        "accelerator": hardware.accelerator,
        "accelerators": hardware.count,
        "nodes": hardware.nodes,
        "version": served.version,
        "model": served.model,
        **load.model_dump(exclude_none=True),
        **served.settings,
        **served.env,
    }
    return ServingRun(run.name, _known(settings), run.printed.figures, published=True, notes=(run.source, *run.notes))


def logged_run(name: str, line: Mapping[str, Any]) -> ServingRun:
    """A line of bench_serving's JSONL. It tells neither accelerator nor seed."""
    info = line.get("server_info")
    info = info if isinstance(info, dict) else {}
    dataset = line.get("dataset_name")
    drawn = isinstance(dataset, str) and dataset.startswith("random")
    settings = {
        **_of_server(info),
        "dataset": dataset,
        "num_prompts": line.get("num_prompts") or line["completed"] + (line.get("failed") or 0),
        "max_concurrency": line.get("max_concurrency"),
        "request_rate": _rate(line.get("request_rate")),
        "seed": line.get("seed"),
    }
    if drawn:
        settings |= {
            "input_len": line.get("random_input_len"),
            "output_len": line.get("random_output_len"),
            "range_ratio": line.get("random_range_ratio"),
        }
    told = {key: float(value) for key in FIGURES if isinstance(value := line.get(key), int | float)}
    figures = {key: value for key, value in told.items() if math.isfinite(value) and (value or not key.endswith("_ms"))}
    unobserved = sorted({key.split("_", 1)[1].removesuffix("_ms") for key in told.keys() - figures.keys()})
    notes = (f"{name}: 0 there for {', '.join(unobserved)}, which is how bench_serving writes what it did not observe",)
    return ServingRun(name, _known(settings), figures, notes=notes if unobserved else ())


def recorded_run(name: str, records: Sequence[Record]) -> ServingRun:
    """Records of one trial; figures are means over its boots.

    Raises:
        InputError: several trials, or nothing measured.

    """
    measured = [record for record in records if isinstance(record.outcome, Measured)]
    if not measured:
        raise InputError(f"{name}: nothing was measured there")
    trials = list(dict.fromkeys(record.id for record in measured))
    if len(trials) > 1:
        known = ", ".join(trial[:10] for trial in trials[:6])
        raise InputError(f"{name}: {len(trials)} trials; name one as {name}#TRIAL (there are {known} …)")
    confirmed = [record for record in measured if record.phase == "confirm"] or measured
    first = confirmed[0]
    figures = {}
    for theirs, ours in FIGURES.items():
        values = [
            record.outcome.metrics[ours].value
            for record in confirmed
            if isinstance(record.outcome, Measured) and ours in record.outcome.metrics
        ]
        if len(values) == len(confirmed):
            figures[theirs] = math.fsum(values) / len(values)
    notes = (_ACCEPT_LENGTH,) if "accept_length" in figures else ()
    return ServingRun(name, _of_record(first), figures, boots=len({record.boot for record in confirmed}), notes=notes)


def _version(runtime: RuntimeIdentity) -> str:
    """With the kind where its speeds are not sglang's."""
    is_sglang = runtime_kinds()[runtime.kind].caveat is None
    return runtime.version if is_sglang else f"{runtime.version} ({runtime.kind})"


def _of_record(record: Record) -> dict[str, Setting]:
    assert record.trial.kind == "serve"  # only they are measured
    workload, gpus = record.trial.workload, record.environment.hardware.gpus
    drawn = workload.dataset in ("random", "random-ids")
    settings = {
        **_of_server(dict(record.resolved)),
        **{name: value for name, value in record.trial.runtime.knobs.items() if name in SERVER_SETTINGS},
        "accelerator": gpus[0].name if gpus else "none",
        "accelerators": len(gpus),
        "version": _version(record.environment.runtime),
        "model": record.trial.runtime.model,
        "dataset": workload.dataset,
        "num_prompts": workload.num_prompts,
        "max_concurrency": workload.max_concurrency,
        "request_rate": _asked_rate(workload),
        "seed": workload.seed,
        **record.trial.runtime.env,
    }
    if drawn:
        lengths = {"input_len": workload.input_len, "output_len": workload.output_len}
        settings |= {**lengths, "range_ratio": workload.range_ratio}
    return _known(settings)


def _asked_rate(workload: Workload) -> float | str:
    if workload.is_paced_by_data:
        return "trace"
    return "inf" if workload.request_rate is None else workload.request_rate


def _of_server(info: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: "none" if info[name] is None else info[name] for name in SERVER_SETTINGS if name in info}
    version = info.get("version")
    if version is not None and "reference" in info:  # its own numbering, which would read as sglang's
        version = f"{version} (reference)"
    return {"version": version, "model": info.get("served_model_name") or info.get("model_path"), **told}


def _rate(value: object) -> object:
    return "inf" if value in (math.inf, "inf") else value


def _known(settings: Mapping[str, object]) -> dict[str, Setting]:
    return {name: value for name, value in settings.items() if isinstance(value, str | int | float | bool)}
