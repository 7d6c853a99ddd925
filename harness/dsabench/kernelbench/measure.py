"""Check and time the points of a request, case by case, and say each as it is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from dsabench.kernelbench.correctness import (
    CandidateFault,
    ContextLostError,
    Correctness,
    KernelCase,
    examine,
    stop_if_lost,
    try_call,
)
from dsabench.kernelbench.request import KernelBenchRequest, TimingLimits
from dsabench.kernelbench.selection import TimingTask
from dsabench.kernelbench.summary import instability, summarise
from dsabench.kernelbench.sustained import sustain
from dsabench.kernelbench.timers import CudaTimer, MachineCeilings, Timer, measure_ceilings, timer_for
from dsabench.machine.nvml import read_state
from dsakernels.candidates.candidate import KernelCandidate, KernelDevice

Emit = Callable[..., None]
Told = dict[str, object]
_ROTATED_BYTES = 1 << 28


def _affordable(emit: Emit, request: KernelBenchRequest, works: Sequence[TimingTask]) -> Iterator[TimingTask]:
    """Those that the budget has time for; the points of the others are said to be left.

    What is measured first is measured whatever it takes, so that a run always gets on.
    """
    emit("begin", points=count(works))
    deadline = None if request.budget_s is None else time.monotonic() + request.budget_s
    has_begun = False
    for number, work in enumerate(works):
        if has_begun and deadline is not None and time.monotonic() > deadline:
            emit("left", points=count(works[number:]))
            return
        has_begun = has_begun or bool(work.able)
        yield work


def check_all(emit: Emit, request: KernelBenchRequest, works: Sequence[TimingTask], _device: KernelDevice) -> None:
    """Say a `check` for every point, on every seed.

    Raises:
        ContextLostError: what came before it is said.

    """
    emit("begin", points=count(works) * request.seeds)
    for work in works:
        for candidate, reason in work.unable:
            emit("check", **work.point(candidate)._asdict(), status="unavailable", reason=reason)
        for seed in range(request.seed, request.seed + request.seeds):
            about: Told = {"seed": seed} if request.seeds > 1 else {}
            drawn = replace(work, case=replace(work.case, seed=seed))
            verdicts, _ = _examined(emit, "check", drawn, about, keep=0)
            for candidate in work.able:
                emit("check", **work.point(candidate)._asdict(), **about, **_check_fields(verdicts[candidate.name]))


def bench_all(emit: Emit, request: KernelBenchRequest, works: Sequence[TimingTask], device: KernelDevice) -> None:
    """Say a `point` for every point: right first, then timed.

    Raises:
        ContextLostError: what came before it is said.

    """
    emit("doing", what="the ceilings of this machine")
    costs = [work.case.operator.cost(work.case.shape, work.case.dtype) for work in works]
    ceilings = measure_ceilings(device.kind, link=any(cost.link_bytes for cost in costs))
    emit("ceilings", **asdict(ceilings))
    for work in _affordable(emit, request, works):
        for candidate, reason in work.unable:
            emit("point", **work.point(candidate)._asdict(), status="unavailable", reason=reason)
        told = _benched(emit, request, work, ceilings)
        for candidate in work.able:
            emit("point", **work.point(candidate)._asdict(), **told[candidate])
        if any(about["status"] == "failed" for about in told.values()):
            stop_if_lost(device.kind, {})
        _give_back(device)


def _benched(
    emit: Emit, request: KernelBenchRequest, work: TimingTask, ceilings: MachineCeilings
) -> dict[KernelCandidate, Told]:
    """Of each that takes the case. The inputs are let go of at the end."""
    verdicts, kept = _examined(emit, "point", work, {}, keep=_sets(work.case))
    told = {c: {**_check_fields(verdicts[c.name]), **_floor(work.case, ceilings)} for c in work.able}
    right = [candidate for candidate in work.able if told[candidate]["status"] == "ok"]
    start = partial(_emit_timing, emit, work, len(right))
    for candidate, found in zip(
        right, time_interleaved(work.case, right, kept, request.limits, start=start), strict=True
    ):
        told[candidate] |= found
    return told


def count(works: Sequence[TimingTask]) -> int:
    """Points of candidates that take their shape."""
    return sum(len(work.able) for work in works)


def _examined(
    emit: Emit, kind: str, work: TimingTask, about: Told, *, keep: int
) -> tuple[Mapping[str, Correctness | CandidateFault], list[Any]]:
    """Verdicts and kept inputs; where the inputs themselves do not fit into memory, every candidate has that fault.

    `about` is said with the verdicts that a lost context leaves.
    """
    if not work.able:
        return {}, []
    emit("doing", what=f"inputs and float64 reference of {work.title}")
    try:
        found = try_call(
            lambda: examine(work.case, work.able, keep=keep, start=partial(_emit_start, emit, work)), work.case.device
        )
    except ContextLostError as lost:
        for name, verdict in lost.args[0].items():
            candidate = next(c for c in work.able if c.name == name)
            emit(kind, **work.point(candidate)._asdict(), **about, **_check_fields(verdict))
        raise
    if isinstance(found, CandidateFault):
        return {candidate.name: found for candidate in work.able}, []
    return found.verdicts, found.kept


def _sets(case: KernelCase) -> int:
    """Inputs that are timed in turn."""
    return 4 if case.operator.cost(case.shape, case.dtype).bytes < _ROTATED_BYTES else 2


def time_interleaved(
    case: KernelCase,
    candidates: Sequence[KernelCandidate],
    kept: Sequence[Any],
    limits: TimingLimits,
    *,
    start: Callable[[KernelCandidate], None] = lambda _c: None,
) -> list[Told]:
    """Times of each, in the order given: one sample of each after the other, so that what drifts drifts for all alike.

    `limits.max_s` is for each candidate.
    """
    timers: list[Timer | CandidateFault] = []
    for candidate in candidates:
        start(candidate)
        timers.append(try_call(partial(_timer, case, candidate, kept), case.device))
    samples: list[list[float]] = [[] for _ in timers]
    live = [(timer, mine) for timer, mine in zip(timers, samples, strict=True) if not isinstance(timer, CandidateFault)]
    fault = try_call(partial(_sample, live, limits), case.device)
    told = []
    for timer, mine in zip(timers, samples, strict=True):
        if isinstance(timer, CandidateFault):
            told.append(_fault(timer, "failed"))
        else:
            told.append(_fault(fault, "failed") if fault else _time_fields(timer, mine, limits))
    if limits.sustain_s:
        told = [
            _with_sustained(case, timer, found, limits.sustain_s) for timer, found in zip(timers, told, strict=True)
        ]
    return told


def _with_sustained(case: KernelCase, timer: Timer | CandidateFault, told: Told, seconds: float) -> Told:
    """What was told of a candidate and what it says under load; a fault there takes its times away."""
    if told["status"] != "ok" or isinstance(timer, CandidateFault):
        return told
    found = try_call(lambda: sustain(timer, seconds, float(str(told["median_us"]))), case.device)
    return _fault(found, "failed") if isinstance(found, CandidateFault) else {**told, "sustain_s": seconds, **found}


def _timer(case: KernelCase, candidate: KernelCandidate, kept: Sequence[Any]) -> Timer:
    return timer_for(case.device, [candidate.bind(inputs) for inputs in kept], captures=candidate.captures)


def _sample(live: Sequence[tuple[Timer, list[float]]], limits: TimingLimits) -> None:
    """Until all are at rest; every other round backwards, so that none always follows the same."""
    begin = time.monotonic()
    while live:
        for number in range(limits.min_samples):
            for timer, mine in live if number % 2 == 0 else reversed(live):
                mine.append(timer.sample())
        is_over = len(live[0][1]) >= limits.max_samples or time.monotonic() - begin >= limits.max_s * len(live)
        if is_over or not any(instability(mine, limits.half_width) for _, mine in live):
            return


def _time_fields(timer: Timer, samples: Sequence[float], limits: TimingLimits) -> Told:
    reason = instability(samples, limits.half_width)
    is_gpu = isinstance(timer, CudaTimer)
    state = read_state(f"GPU-{torch.cuda.get_device_properties().uuid}") if is_gpu else None
    about: Told = {}
    if state is not None:  # read while the clocks are still what the samples made them
        about = {"sm_mhz": state.sm_mhz, "memory_mhz": state.memory_mhz, "temperature_c": state.temperature_c}
        reason = f"the GPU was throttled: {state.throttled}" if state.throttled else reason
    if isinstance(timer, CudaTimer):
        about["graph"] = timer.is_graph
    if reason is not None:
        return {**about, "status": "unstable", "reason": reason}
    return {**about, "status": "ok", **asdict(summarise(samples))}


def _emit_start(emit: Emit, work: TimingTask, candidate: KernelCandidate) -> None:
    emit("start", **work.point(candidate)._asdict())


def _emit_timing(emit: Emit, work: TimingTask, number: int, candidate: KernelCandidate) -> None:
    """Each is prepared by itself and then timed in turn with the others."""
    _emit_start(emit, work, candidate)
    emit("doing", what=f"timing {number} of {work.title} in turn" if number > 1 else f"timing one of {work.title}")


def _floor(case: KernelCase, ceilings: MachineCeilings) -> Told:
    """The least work and the time that it takes at the ceilings."""
    cost = case.operator.cost(case.shape, case.dtype)
    floor_us = max(cost.bytes / ceilings.tb_s, cost.flops / ceilings.tflop_s) / 1e6
    top: Told = {"ceiling_tb_s": ceilings.tb_s, "ceiling_tflop_s": ceilings.tflop_s}
    if cost.link_bytes and ceilings.link_gb_s is not None:
        floor_us = max(floor_us, cost.link_bytes / ceilings.link_gb_s / 1e3)
        top |= {"link_bytes": cost.link_bytes, "ceiling_link_gb_s": ceilings.link_gb_s}
    return {"bytes": cost.bytes, "flops": cost.flops, "floor_us": floor_us, **top}


def _check_fields(verdict: Correctness | CandidateFault) -> Told:
    if isinstance(verdict, CandidateFault):
        return _fault(verdict, "wrong")
    words: Told = {"status": "ok", "rel_err": verdict.rel_err, "rows_checked": verdict.rows}
    if verdict.rounded_err is not None:
        words["rounded_err"] = verdict.rounded_err
    if verdict.rel_err is None:
        return {
            **words,
            "status": "wrong",
            "reason": "an output is not finite, or not written, or points to what is not its own",
        }
    if not verdict.is_right:
        over = "" if verdict.rounded_err is None else " of the reference over inputs rounded as it does"
        return {**words, "status": "wrong", "reason": f"relative error{over} above {verdict.tolerance:g}"}
    return words


def _fault(fault: CandidateFault, status: str) -> Told:
    return {"status": "unavailable" if fault.is_memory else status, "reason": fault.reason}


def _give_back(device: KernelDevice) -> None:
    """Graphs keep pools of their own; without this a long run fragments the memory until large inputs do not fit."""
    if device.kind == "cuda" and torch.cuda.memory_reserved() > torch.cuda.get_device_properties().total_memory // 2:
        torch.cuda.empty_cache()
