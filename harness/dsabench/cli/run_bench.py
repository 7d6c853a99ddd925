"""One load test as bench_serving runs it: draw, warm up, flush, measure, print, append."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsabench.cli.bench_choices import order_for, output_path, selection_for, server_for, tokenizer_for, wish_for
from dsabench.cli.bench_progress import progress_for
from dsabench.errors import TrialFault, printable
from dsabench.load.bench_serving.cpu import cpu_s
from dsabench.load.bench_serving.output import (
    ClientCost,
    append_record,
    other_count_lines,
    record_of,
    result_lines,
    schedule_lines,
    steady_lines,
)
from dsabench.load.bench_serving.report import (
    BenchData,
    BenchReport,
    ReportOptions,
    report_run,
)
from dsabench.load.bench_serving.run import BenchAnswers, BenchLoad, measure
from dsabench.load.bench_serving.server import BenchControl
from dsabench.load.draw.as_bench_serving import DatasetSelection, SeededGenerators, draw_exact
from dsabench.load.draw.tokenizers import NoTokenizer, Tokenizer
from dsabench.load.judge.machine_use import CompletedWork, machine_line, machine_metrics, observed_warnings
from dsabench.load.judge.metrics import MetricValue
from dsabench.load.judge.stalls import stall_warnings
from dsabench.load.judge.summary import request_warnings
from dsabench.load.judge.validity import FAILED_SHARE_MAX, ServerInfoPair, too_many_failed
from dsabench.load.requests import RequestOptions, asked_tokens, body_of, size_limits
from dsabench.load.schedule import ArrivalSchedule, ConstantRate, exact_arrivals, recorded_arrivals
from dsabench.machine.sampler import MachineSampler
from dsabench.model.sample import Prompt

_WARM_UP_TOKENS_MAX = 32


class _Draw(NamedTuple):
    """Everything that is decided before the first request."""

    prompts: Sequence[Prompt]
    warm_up: Prompt
    departures: ArrivalSchedule


def run_bench(args: Namespace, startup_cpu_s: float) -> int:
    """Run it; exit code 3 when the numbers are void, after the line is written."""
    server = server_for(args)
    selection, wish = (
        selection_for(args),
        wish_for(args, args.model or ""),
    )  # wrong flags, before any server is waited for
    if args.ready_check_timeout_sec > 0:
        server.wait_until_ready(args.ready_check_timeout_sec, _note)
    model = args.model or server.first_model()
    info = server.info(args.ready_check_timeout_sec)
    tokenizer = tokenizer_for(args, server, model, info)
    wish = wish._replace(model=model)
    draw = _draw(args, selection, tokenizer)
    load = _load(args, server, wish, draw, keep_text=_needs_text(args, tokenizer))
    _warm_up(args, server, wish, load, draw.warm_up)
    if args.profile:
        server.profile("start", _profile_settings(args))
    observer = MachineSampler(gpus=_gpus(server, info))
    with progress_for(args, len(draw.prompts)) as tell:
        seen = measure(load, draw.prompts, tell, observer)
    if args.profile and args.profile_steps is None and args.profile_num_steps is None:
        server.profile("stop", {})
    report = _report(args, server, tokenizer, seen, max(seen.duration_s, draw.departures.end_s))
    code = _publish(args, report, seen, startup_cpu_s, _doubts(report, seen, observer, info))
    if args.samples:
        from dsabench.results.samples import write_samples

        path = Path(args.samples)
        write_samples(path.parent, path.name, report.samples)
    if args.plot:
        from dsabench.cli.bench_plot import draw_bench

        draw_bench(args, report.samples)
    return code


def _note(text: str) -> None:
    """Say what is waited for. The text may quote a server."""
    print(f"note: {printable(text)}; --ready-check-timeout-sec sets the time", file=sys.stderr, flush=True)


def _gpus(server: BenchControl, info: object) -> tuple[str, ...]:
    """Those of this machine that the server computes on, as far as that is known."""
    from dsabench.machine.server_gpus import gpus_of_address

    return gpus_of_address(server.base_url, info) if isinstance(info, dict) else ()


def _restart(before: object, after: object) -> str | None:
    """What shows that another server process answered at the end; None where nothing does, or nothing is told."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return None
    return ServerInfoPair(before, after).restarted


def _draw(args: Namespace, selection: DatasetSelection, tokenizer: Tokenizer) -> _Draw:
    """In bench_serving's order: prompts first, then the gaps, of the same generators."""
    dice = SeededGenerators.of(args.seed)
    prompts = _own_ids(args, tokenizer) if args.draw == "own" else draw_exact(selection, tokenizer, dice)
    warm_up = prompts[0]
    if args.dataset_name == "mooncake":
        from dsabench.load.draw.recorded import warm_up_prompt

        return _Draw(prompts, warm_up_prompt(selection, tokenizer), recorded_arrivals(prompts))
    if args.arrivals == "constant":
        evenly = ConstantRate(args.request_rate).times_s(len(prompts), np.random.default_rng())
        return _Draw(prompts, warm_up, ArrivalSchedule.of(evenly))
    rate = args.request_rate
    return _Draw(prompts, warm_up, exact_arrivals(len(prompts), rate, dice.legacy, burstiness=args.burstiness))


def _own_ids(args: Namespace, tokenizer: Tokenizer) -> list[Prompt]:
    """Random ids of which no two prompts share the first, so that a prefix cache has nothing to answer with."""
    from dsabench.load.draw.prompts import RandomIdDataset, TokenLengths

    rng = np.random.default_rng([args.seed, 0])
    lengths = [
        rng.integers(max(int(longest * args.random_range_ratio), 1), longest + 1, size=args.num_prompts).tolist()
        for longest in (args.random_input_len, args.random_output_len)
    ]
    return list(RandomIdDataset(tokenizer.vocab_size).draw(list(map(TokenLengths, *lengths)), rng))


def _needs_text(args: Namespace, tokenizer: Tokenizer) -> bool:
    return bool(_counts(args, tokenizer) or args.output_details or args.cache_report or args.backend not in _NATIVE)


_NATIVE = ("sglang", "sglang-native")


def _counts(args: Namespace, tokenizer: Tokenizer) -> bool:
    """Whether the text that comes back is tokenized again."""
    return not (args.disable_retokenize or isinstance(tokenizer, NoTokenizer))


def _load(args: Namespace, server: BenchControl, wish: RequestOptions, draw: _Draw, *, keep_text: bool) -> BenchLoad:
    from dsabench.load.requests import PATHS

    return BenchLoad(
        url=server.base_url + PATHS[wish.endpoint],
        endpoint=wish.endpoint,
        headers=server.headers,
        bodies=[body_of(wish, prompt) for prompt in draw.prompts],
        due_s=draw.departures.due_s,
        max_concurrency=args.max_concurrency,
        timeout_s=args.request_timeout_s,
        workers=args.workers,
        keep_text=keep_text,
        limits=size_limits(wish, draw.prompts),
        asked=[asked_tokens(wish, prompt) for prompt in draw.prompts],
    )


def _warm_up(args: Namespace, server: BenchControl, wish: RequestOptions, load: BenchLoad, first: Prompt) -> None:
    """The first prompt with at most 32 tokens, as often as asked, at the run's concurrency; then flush.

    Raises:
        TrialFault: all of them failed.

    """
    if args.warmup_requests:
        prompt = replace(first, output_len=min(first.output_len, _WARM_UP_TOKENS_MAX), extra=None)
        prompts = [prompt] * args.warmup_requests
        seen = measure(
            load._replace(
                bodies=[body_of(wish, prompt)] * len(prompts),
                due_s=None,
                asked=[asked_tokens(wish, prompt)] * len(prompts),
            ),
            prompts,
            None,
        )
        _refuse_total_failure(seen, "warm-up")
    if args.flush_cache:
        server.flush(args.backend, args.flush_cache_timeout)


def _refuse_total_failure(seen: BenchAnswers, what: str) -> None:
    errors = Counter(sample.error for sample in seen.samples if sample.error is not None)
    if errors.total() == len(seen.samples):
        [(commonest, _)] = errors.most_common(1)
        raise TrialFault("request_errors", f"all {len(seen.samples)} {what} requests failed, most with {commonest}",
                         stage="warmup" if what == "warm-up" else "load")  # fmt: skip


def _report(
    args: Namespace, server: BenchControl, tokenizer: Tokenizer, seen: BenchAnswers, duration_s: float
) -> BenchReport:
    _refuse_total_failure(seen, "measured")
    wanted = ReportOptions(
        count_tokens=tokenizer.count if _counts(args, tokenizer) else None,
        goodput_slos_ms=dict(args.goodput) if args.goodput else None,
        cache_report=args.cache_report,
    )
    heard = BenchData(seen.samples, seen.spoken, duration_s, server.find("/server_info"))
    return report_run(order_for(args), heard, wanted)


def _profile_settings(args: Namespace) -> dict[str, object]:
    steps = 5 if args.profile_by_stage and args.profile_num_steps is None else args.profile_num_steps
    settings = {
        "activities": args.profile_activities,
        "num_steps": steps,
        "profile_by_stage": args.profile_by_stage,
        "profile_stages": args.profile_stages,
        "output_dir": args.profile_output_dir,
        "profile_prefix": args.profile_prefix,
    }
    later = {"start_step": args.profile_start_step, "num_steps": args.profile_steps}
    return settings | {name: str(value) for name, value in later.items() if value is not None}


class _Doubts(NamedTuple):
    """What is said beside the numbers, and why they are void; empty where they are not."""

    cautions: Sequence[str]
    void: Sequence[str]


def _doubts(report: BenchReport, seen: BenchAnswers, observer: MachineSampler, info: object) -> _Doubts:
    return _Doubts(
        [
            *stall_warnings(report.samples, seen.health.lag_max_ms),
            *request_warnings(report.samples, report.order.dataset_name, counts_sent=True),
            *observed_warnings(seen.machine, observer.fault),
        ],
        _void(report, seen, _restart(info, report.server_info)),
    )


def _machine(report: BenchReport, seen: BenchAnswers) -> dict[str, MetricValue]:
    if seen.machine is None:
        return {}
    figures = report.metrics
    return machine_metrics(seen.machine, CompletedWork(figures.completed, figures.total_input, figures.total_output))


def _publish(args: Namespace, report: BenchReport, seen: BenchAnswers, startup_cpu_s: float, doubts: _Doubts) -> int:
    """Append the line, then print and warn: a terminal that is gone loses no measurement.

    Returns 3 where the numbers are void: too many requests failed, the client was saturated, or the server
    restarted.
    """
    machine = _machine(report, seen)
    record = record_of(report, details=args.output_details, machine=machine)
    lines, path = result_lines(report), output_path(args)
    more = [*schedule_lines(report.from_schedule), *(steady_lines(report.steady) if report.steady is not None else ())]
    more += [*other_count_lines(report), *([machine_line(machine)] if machine else [])]
    client = _cost(seen, startup_cpu_s)
    append_record(path, record, client)
    for warning in (*doubts.cautions, *doubts.void):
        print(f"warning: {warning}", file=sys.stderr)
    print(json.dumps({**record, "client": client._asdict()}) if args.json else "\n".join([*lines, *more]), flush=True)
    print(f"appended to {path}", file=sys.stderr)  # the name may be none that the user gave
    return 3 if doubts.void else 0


def _cost(seen: BenchAnswers, startup_cpu_s: float) -> ClientCost:
    health = seen.health
    return ClientCost(
        cpu_s=cpu_s(),
        startup_cpu_s=startup_cpu_s,
        frames=seen.frames,
        saturated=health.saturated is not None,
        reason=health.saturated,
        lag_p99_ms=health.lag_p99_ms,
        send_lag_max_ms=health.send_lag_max_ms,
        backlog_ms=health.backlog_ms,
        gc_pauses=health.gc_pauses,
        gc_max_ms=health.gc_max_ms,
    )


def _void(report: BenchReport, seen: BenchAnswers, restart: str | None) -> list[str]:
    """Why the numbers are no measurement of what was asked; empty where they are."""
    sent = len(report.samples)
    found = []
    if too_many_failed(failed := sent - report.metrics.completed, sent):
        found.append(
            f"more than {FAILED_SHARE_MAX:.0%} of the requests failed ({failed} of {sent}), so these numbers are no "
            "measurement of the load that was asked"
        )
    if restart is not None:
        found.append(f"the server restarted during the run, so these numbers are of no one server: {restart}")
    if seen.saturated is not None:
        found.append(f"client saturated, so these numbers describe the client: {seen.saturated}")
    return found
