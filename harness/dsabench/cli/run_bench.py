"""One load test as bench_serving runs it: draw, warm up, flush, send; `bench_report` does the rest.

What is not needed before the first request is imported after it.
"""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dsabench.cli.bench_choices import options_for, selection_for, server_for, tokenizer_for
from dsabench.cli.bench_progress import progress_for
from dsabench.errors import printable
from dsabench.load.bench_serving.phases import PhaseClock
from dsabench.load.bench_serving.run import BenchLoad, read, refuse_total_failure, send
from dsabench.load.bench_serving.server import BenchControl
from dsabench.load.draw.as_bench_serving import (
    DatasetSelection,
    DrawnDataset,
    SeededGenerators,
    draw_dataset,
    warm_up_of,
)
from dsabench.load.draw.tokenizers import NoTokenizer, Tokenizer
from dsabench.load.plan import ClosedLoop, FollowUp, LoadPlan, RequestTimeouts
from dsabench.load.requests import PATHS, RequestOptions, asked_tokens, body_of, size_limits
from dsabench.load.schedule import (
    ArrivalSchedule,
    ConstantRate,
    are_chats,
    conversation_of,
    exact_arrivals,
    is_timed,
    pacing_of,
    recorded_arrivals,
)
from dsabench.machine.sampler import MachineSampler
from dsabench.model.sample import Prompt

_SIZED_BY_OTHER_FLAGS = frozenset({"generated-shared-prefix"})


class _Draw(NamedTuple):
    """Everything that is decided before the first request."""

    prompts: Sequence[Prompt]
    warm_up: Prompt
    departures: ArrivalSchedule
    notes: Sequence[str] = ()
    from_trace: bool = False


def run_bench(args: Namespace, clock: PhaseClock) -> int:
    """Run it; exit code 3 when the numbers are void, after the line is written."""
    server, selection = server_for(args), selection_for(args)
    options = options_for(args, args.model or "")  # wrong flags, before any server is waited for
    if args.ready_check_timeout_sec > 0:
        server.wait_until_ready(args.ready_check_timeout_sec, _note_waiting)
    model = args.model or server.first_model()
    info = server.info(args.ready_check_timeout_sec)
    clock.end("wait")
    tokenizer = tokenizer_for(args, server, model, info)
    draw = _draw(args, selection, tokenizer)
    options = _with_usage(options._replace(model=args.served_model_name or model), draw.prompts)
    load = _load(args, server, options, draw, keep_text=_needs_text(args, tokenizer))
    for note in draw.notes:
        _note(note)
    clock.end("draw")
    _warm_up(args, server, options, load, draw.warm_up)
    if args.profile:
        server.profile("start", _profile_settings(args))
    observer = MachineSampler(gpus=_gpus(server, info))
    clock.end("warm_up")
    with progress_for(args, len(draw.prompts)) as tell:
        run = send(load, tell, observer)
    clock.end_load(sum(own.cpu_s for own in run.vitals), max(own.wall_s for own in run.vitals))
    if args.profile and args.profile_steps is None and args.profile_num_steps is None:
        server.profile("stop", {})
    seen = read(load, draw.prompts, run, observer)
    refuse_total_failure(seen, "measured", "load")
    clock.end("read")
    from dsabench.cli.bench_report import BenchOutcome, report_bench

    count = tokenizer.count if _counts(args, tokenizer) else None
    duration_s = max(seen.duration_s, draw.departures.end_s)
    info_after = server.find("/server_info")
    data = BenchOutcome(seen, duration_s, info, info_after, observer.fault, draw.notes, draw.from_trace)
    return report_bench(args, data, count, clock)


def _note(text: str) -> None:
    """The text may quote a server or a file."""
    print(f"note: {printable(text)}", file=sys.stderr, flush=True)


def _note_waiting(text: str) -> None:
    _note(f"{text}; --ready-check-timeout-sec sets the time")


def _gpus(server: BenchControl, info: object) -> tuple[str, ...]:
    """Those of this machine that the server computes on, as far as that is known."""
    from dsabench.machine.server_gpus import gpus_of_address

    return gpus_of_address(server.base_url, info) if isinstance(info, dict) else ()


def _draw(args: Namespace, selection: DatasetSelection, tokenizer: Tokenizer) -> _Draw:
    """In bench_serving's order: prompts first, then the gaps, of the same generators."""
    generators = SeededGenerators.of(args.seed)
    own = args.draw == "own" and args.dataset_name == "random-ids"
    drawn = DrawnDataset(_own_ids(args, tokenizer)) if own else draw_dataset(selection, tokenizer, generators)
    prompts, notes = drawn.prompts, list(drawn.notes)
    begun = conversation_of(prompts)
    count = int(begun[-1]) + 1
    if count < args.num_prompts and args.dataset_name not in _SIZED_BY_OTHER_FLAGS:
        notes.append(f"{args.num_prompts} requests were asked for, and the dataset has {count}")
    if count < len(prompts):
        notes.append(f"{count} conversations of {len(prompts)} requests in all; --max-concurrency counts conversations")
    first = prompts[0]
    if args.dataset_name == "mooncake" and selection.exact:
        from dsabench.load.draw.recorded import warm_up_prompt

        first = warm_up_prompt(selection, tokenizer)
    warm_up = warm_up_of(first)
    if is_timed(prompts) and math.isinf(args.request_rate):
        return _Draw(prompts, warm_up, recorded_arrivals(prompts), notes, from_trace=True)
    if args.arrivals == "constant":
        evenly = ConstantRate(args.request_rate).times_s(count, np.random.default_rng())
        return _Draw(prompts, warm_up, ArrivalSchedule.of(evenly[begun]), notes)
    due_s, end_s = exact_arrivals(count, args.request_rate, generators.legacy, burstiness=args.burstiness)
    return _Draw(prompts, warm_up, ArrivalSchedule(due_s[begun], end_s), notes)


def _with_usage(options: RequestOptions, prompts: Sequence[Prompt]) -> RequestOptions:
    """Ask for token counts, which alone say how long a prompt with the server's own answers is."""
    told = options.extra.get("stream_options", {})
    if not are_chats(prompts) or not isinstance(told, dict):
        return options
    return options._replace(extra={**options.extra, "stream_options": {"include_usage": True, **told}})


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


def _load(args: Namespace, server: BenchControl, options: RequestOptions, draw: _Draw, *, keep_text: bool) -> BenchLoad:
    """All at once is a closed loop with a slot for each, as far as there are slots."""
    due_s = draw.departures.due_s
    plan = LoadPlan(
        url=server.base_url + PATHS[options.endpoint],
        bodies=[body_of(options, prompt) for prompt in draw.prompts],
        pacing=pacing_of(draw.prompts, due_s.tolist() if due_s.any() else None, args.max_concurrency),
        headers=server.headers,
        timeouts=RequestTimeouts(total_s=args.request_timeout_s),
        limits=size_limits(options, draw.prompts),
        workers=args.workers,
        follow_up=_follow_up(options, draw.prompts),
    )
    return BenchLoad(plan, options.endpoint, asked_tokens(options, draw.prompts), keep_text)


def _follow_up(options: RequestOptions, prompts: Sequence[Prompt]) -> FollowUp | None:
    if not are_chats(prompts):
        return None
    from dsabench.load.read.chat_history import follow_up_of

    return follow_up_of(options, prompts)


def _warm_up(args: Namespace, server: BenchControl, options: RequestOptions, load: BenchLoad, prompt: Prompt) -> None:
    """As often as asked, at the run's concurrency; then flush.

    Raises:
        TrialFault: all of them failed.

    """
    if args.warmup_requests:
        prompts = [prompt] * args.warmup_requests
        pacing = ClosedLoop(args.max_concurrency or len(prompts))
        plan = replace(load.plan, follow_up=None, bodies=[body_of(options, prompt)] * len(prompts), pacing=pacing)
        load = load._replace(plan=plan, asked=asked_tokens(options, prompts))
        refuse_total_failure(read(load, prompts, send(load, None)), "warm-up", "warmup")
    if args.flush_cache:
        server.flush(args.backend, args.flush_cache_timeout)


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
