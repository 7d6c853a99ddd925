"""What `dsabench bench` says after its load: the block, the JSON line, warnings, samples and pictures."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dsabench.cli.bench_choices import output_path
from dsabench.load.bench_serving.output import (
    ClientCost,
    append_record,
    other_count_lines,
    phase_line,
    record_of,
    result_lines,
    schedule_lines,
    steady_lines,
)
from dsabench.load.bench_serving.phases import PhaseClock, cpu_s
from dsabench.load.bench_serving.report import BenchData, BenchOptions, BenchReport, ReportOptions, report_run
from dsabench.load.bench_serving.run import BenchAnswers
from dsabench.load.judge.machine_use import CompletedWork, machine_line, machine_metrics, observed_warnings
from dsabench.load.judge.metrics import MetricValue
from dsabench.load.judge.stalls import stall_warnings
from dsabench.load.judge.summary import request_warnings
from dsabench.load.judge.validity import FAILED_SHARE_MAX, ServerInfoPair, client_warnings, too_many_failed


class BenchOutcome(NamedTuple):
    """What a run left."""

    seen: BenchAnswers
    duration_s: float
    """By bench_serving's clock."""
    info_before: object
    """/server_info before the run, and after it."""
    info_after: object
    unobserved: str | None
    """Why the machine was not observed."""
    notes: Sequence[str] = ()
    """What was said of the dataset before the run."""
    from_trace: bool = False
    """Whether the data said when each request is sent."""


def report_bench(args: Namespace, outcome: BenchOutcome, count: Callable[[str], int] | None, clock: PhaseClock) -> int:
    """Append the line, then print and warn: a terminal that is gone loses no measurement.

    Returns 3 where the numbers are void: too many requests failed, the client was saturated, or the server
    restarted.
    """
    wanted = ReportOptions(count, dict(args.goodput) if args.goodput else None, args.cache_report)
    seen = outcome.seen
    data = BenchData(seen.samples, seen.spoken, outcome.duration_s, outcome.info_after)
    report = report_run(_options(args, outcome), data, wanted)
    machine, path = _machine(report, seen), output_path(args)
    void = _void(report, outcome)
    warnings = [*_warnings(report, outcome), *void]
    measured = record_of(report, details=args.output_details, machine=machine)
    record = {**measured, "notes": [*outcome.notes], "warnings": warnings}
    blocks = [*result_lines(report), *schedule_lines(report.from_schedule)]
    blocks += [*(steady_lines(report.steady) if report.steady is not None else ()), *other_count_lines(report)]
    blocks += [machine_line(machine)] if machine else []
    clock.end("report")
    client = _cost(seen, clock)
    append_record(path, record, client)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    blocks.append(phase_line(client))
    print(json.dumps({**record, "client": client._asdict()}) if args.json else "\n".join(blocks), flush=True)
    print(f"appended to {path}", file=sys.stderr)  # the name may be none that the user gave
    if args.samples:
        from dsabench.results.samples import write_samples

        file = Path(args.samples)
        write_samples(file.parent, file.name, report.samples)
    if args.plot:
        from dsabench.cli.bench_plot import draw_bench

        draw_bench(args, report.samples)
    return 3 if void else 0


def _options(args: Namespace, outcome: BenchOutcome) -> BenchOptions:
    return BenchOptions(
        backend=args.backend,
        dataset_name=args.dataset_name,
        request_rate=args.request_rate,
        max_concurrency=args.max_concurrency,
        tag=args.tag,
        sharegpt_output_len=args.sharegpt_output_len,
        random_input_len=args.random_input_len,
        random_output_len=args.random_output_len,
        random_range_ratio=args.random_range_ratio,
        from_trace=args.use_trace_timestamps or (outcome.from_trace and args.draw != "exact"),
    )


def _machine(report: BenchReport, seen: BenchAnswers) -> dict[str, MetricValue]:
    if seen.machine is None:
        return {}
    metrics = report.metrics
    return machine_metrics(seen.machine, CompletedWork(metrics.completed, metrics.total_input, metrics.total_output))


def _warnings(report: BenchReport, outcome: BenchOutcome) -> Sequence[str]:
    """What is said beside the numbers."""
    health = outcome.seen.health
    return [
        *stall_warnings(report.samples, health.lag_max_ms),
        *request_warnings(report.samples, report.options.dataset_name, counts_sent=True),
        *client_warnings(health),
        *observed_warnings(outcome.seen.machine, outcome.unobserved),
    ]


def _void(report: BenchReport, outcome: BenchOutcome) -> list[str]:
    """Why the numbers are no measurement of what was asked; empty where they are."""
    sent = len(report.samples)
    found = []
    if too_many_failed(failed := sent - report.metrics.completed, sent):
        found.append(
            f"more than {FAILED_SHARE_MAX:.0%} of the requests failed ({failed} of {sent}), so these numbers are no "
            "measurement of the load that was asked"
        )
    if (sign := _restart(outcome.info_before, outcome.info_after)) is not None:
        found.append(f"the server restarted during the run, so these numbers are of no one server: {sign}")
    if outcome.seen.saturated is not None:
        found.append(f"client saturated, so these numbers describe the client: {outcome.seen.saturated}")
    return found


def _restart(before: object, after: object) -> str | None:
    """What shows that another server process answered at the end; None where nothing does, or nothing is told."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return None
    return ServerInfoPair(before, after).restarted


def _cost(seen: BenchAnswers, clock: PhaseClock) -> ClientCost:
    health = seen.health
    return ClientCost(
        cpu_s=cpu_s(),
        startup_cpu_s=clock.cpu_s["start"],
        phases_cpu_s=clock.cpu_s,
        phases_s=clock.wall_s,
        frames=seen.frames,
        saturated=health.saturated is not None,
        reason=health.saturated,
        lag_p99_ms=health.lag_p99_ms,
        late_ms=health.late_ms,
        core_wait_share=health.core_wait_share,
        send_lag_max_ms=health.send_lag_max_ms,
        backlog_ms=health.backlog_ms,
        gc_pauses=health.gc_pauses,
        gc_max_ms=health.gc_max_ms,
    )
