"""Check and time the points of a request, case by case, and say each as it is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from dsabench.microbench import choose
from dsabench.microbench.ceilings import Ceilings, measure_ceilings
from dsabench.microbench.check import Case, ContextLostError, Fault, Verdict, attempt, examine, stop_if_lost
from dsabench.microbench.gpu_state import read_state
from dsabench.microbench.request import Limits, Point, Request
from dsabench.microbench.summary import instability, summarise
from dsabench.microbench.timers import CudaTimer, Timer, timer_for
from dsakernels.candidates.candidate import Candidate, Device
from dsakernels.operator import Operator

Say = Callable[..., None]
Chosen = Sequence[tuple[Operator, Sequence[Candidate]]]
Told = dict[str, object]
_ROTATED_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class _Work:
    """A case and the candidates asked for it."""

    case: Case
    candidates: tuple[Candidate, ...]

    def point(self, candidate: Candidate) -> Point:
        return Point(self.case.operator.name, candidate.name, self.case.shape.id, self.case.dtype)


def check_all(say: Say, request: Request, chosen: Chosen, device: Device) -> None:
    """Say a `check` for every point that a candidate takes.

    Raises:
        ContextLostError: what came before it is said.

    """
    for work in _works(request, chosen, device):
        able = [candidate for candidate in work.candidates if candidate.limit(work.case.shape) is None]
        verdicts, _ = _examined(say, "check", work, able, keep=0)
        for candidate in able:
            say("check", **work.point(candidate)._asdict(), **_words(verdicts[candidate.name]))


def bench_all(say: Say, request: Request, chosen: Chosen, device: Device) -> None:
    """Say a `point` for every point: right first, then timed.

    Raises:
        ContextLostError: what came before it is said.

    """
    deadline = None if request.budget_s is None else time.monotonic() + request.budget_s
    ceilings = measure_ceilings(device.kind)
    say("ceilings", **asdict(ceilings))
    left = 0
    for work in _works(request, chosen, device):
        if deadline is not None and time.monotonic() > deadline:
            left += len(work.candidates)
            continue
        for candidate in work.candidates:
            reason = candidate.limit(work.case.shape)
            if reason is not None:
                say("point", **work.point(candidate)._asdict(), status="unavailable", reason=reason)
        able = [candidate for candidate in work.candidates if candidate.limit(work.case.shape) is None]
        verdicts, kept = _examined(say, "point", work, able, keep=_sets(work.case))
        told = {candidate: {**_words(verdicts[candidate.name]), **_floor(work.case, ceilings)} for candidate in able}
        right = [candidate for candidate in able if told[candidate]["status"] == "ok"]
        times = in_turn(work.case, right, kept, request.limits, start=partial(_say_start, say, work))
        for candidate, found in zip(right, times, strict=True):
            told[candidate] |= found
        for candidate in able:
            say("point", **work.point(candidate)._asdict(), **told[candidate])
        if any(about["status"] == "failed" for about in told.values()):
            stop_if_lost(device.kind, {})
        del kept
        _give_back(device)
    say("left", points=left)


def time_twice(say: Say, request: Request, chosen: Chosen, device: Device) -> None:
    """Say a `pair` for every point: its times as those of two candidates that are measured in turn.

    Raises:
        ContextLostError: what came before it is said.

    """
    deadline = None if request.budget_s is None else time.monotonic() + request.budget_s
    for work in _works(request, chosen, device):
        if deadline is not None and time.monotonic() > deadline:
            break
        able = [candidate for candidate in work.candidates if candidate.limit(work.case.shape) is None]
        verdicts, kept = _examined(say, "check", work, able, keep=_sets(work.case))
        right = [candidate for candidate in able if _words(verdicts[candidate.name])["status"] == "ok"]
        for candidate in right:
            pair = in_turn(work.case, [candidate] * 2, kept, request.limits, start=partial(_say_start, say, work))
            say("pair", **work.point(candidate)._asdict(), first=pair[0], second=pair[1])
        del kept
        _give_back(device)


def _works(request: Request, chosen: Chosen, device: Device) -> Iterator[_Work]:
    """Shape by shape, so that the candidates of one shape are measured close together."""
    done = set(request.skip)
    for operator, runnable in chosen:
        for shape in choose.shapes(request, operator, device):
            for dtype in operator.dtypes:
                case = Case(operator, shape, dtype, device.kind, request.seed)
                wanted = tuple(
                    candidate
                    for candidate in runnable
                    if dtype in candidate.dtypes
                    and (not request.dtypes or dtype in request.dtypes)
                    and Point(operator.name, candidate.name, shape.id, dtype) not in done
                )
                if wanted:
                    yield _Work(case, wanted)


def _examined(
    say: Say, kind: str, work: _Work, able: Sequence[Candidate], *, keep: int
) -> tuple[Mapping[str, Verdict | Fault], list[Any]]:
    """Verdicts and kept inputs; where the inputs themselves do not fit into memory, every candidate has that fault."""
    if not able:
        return {}, []
    try:
        found = attempt(
            lambda: examine(work.case, able, keep=keep, start=partial(_say_start, say, work)), work.case.device
        )
    except ContextLostError as lost:
        for name, verdict in lost.args[0].items():
            candidate = next(c for c in able if c.name == name)
            say(kind, **work.point(candidate)._asdict(), **_words(verdict))
        raise
    if isinstance(found, Fault):
        return {candidate.name: found for candidate in able}, []
    return found.verdicts, found.kept


def _sets(case: Case) -> int:
    """Inputs that are timed in turn."""
    return 4 if case.operator.cost(case.shape, case.dtype).bytes < _ROTATED_BYTES else 2


def in_turn(
    case: Case,
    candidates: Sequence[Candidate],
    kept: Sequence[Any],
    limits: Limits,
    *,
    start: Callable[[Candidate], None] = lambda _c: None,
) -> list[Told]:
    """Times of each, in the order given: one sample of each after the other, so that what drifts drifts for all alike.

    `limits.max_s` is for each candidate.
    """
    timers: list[Timer | Fault] = []
    for candidate in candidates:
        start(candidate)
        timers.append(attempt(partial(_timer, case, candidate, kept), case.device))
    samples: list[list[float]] = [[] for _ in timers]
    live = [(timer, mine) for timer, mine in zip(timers, samples, strict=True) if not isinstance(timer, Fault)]
    fault = attempt(partial(_sample, live, limits), case.device)
    told = []
    for timer, mine in zip(timers, samples, strict=True):
        if isinstance(timer, Fault):
            told.append(_fault(timer, "failed"))
        else:
            told.append(_fault(fault, "failed") if fault else _told(timer, mine, limits))
    return told


def _timer(case: Case, candidate: Candidate, kept: Sequence[Any]) -> Timer:
    return timer_for(case.device, [candidate.bind(inputs) for inputs in kept], captures=candidate.captures)


def _sample(live: Sequence[tuple[Timer, list[float]]], limits: Limits) -> None:
    """Until all are at rest; every other round backwards, so that none always follows the same."""
    begin = time.monotonic()
    while live:
        for number in range(limits.min_samples):
            for timer, mine in live if number % 2 == 0 else reversed(live):
                mine.append(timer.sample())
        is_over = len(live[0][1]) >= limits.max_samples or time.monotonic() - begin >= limits.max_s * len(live)
        if is_over or not any(instability(mine, limits.half_width) for _, mine in live):
            return


def _told(timer: Timer, samples: Sequence[float], limits: Limits) -> Told:
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


def _say_start(say: Say, work: _Work, candidate: Candidate) -> None:
    say("start", **work.point(candidate)._asdict())


def _floor(case: Case, ceilings: Ceilings) -> Told:
    """The least work and the time that it takes at the ceilings."""
    cost = case.operator.cost(case.shape, case.dtype)
    floor_us = max(cost.bytes / ceilings.tb_s, cost.flops / ceilings.tflop_s) / 1e6
    top = {"ceiling_tb_s": ceilings.tb_s, "ceiling_tflop_s": ceilings.tflop_s}
    return {"bytes": cost.bytes, "flops": cost.flops, "floor_us": floor_us, **top}


def _words(verdict: Verdict | Fault) -> Told:
    if isinstance(verdict, Fault):
        return _fault(verdict, "wrong")
    words: Told = {"status": "ok", "rel_err": verdict.rel_err, "rows_checked": verdict.rows}
    if verdict.rounded_err is not None:
        words["rounded_err"] = verdict.rounded_err
    if verdict.rel_err is None:
        return {**words, "status": "wrong", "reason": "an output is not finite"}
    if not verdict.is_right:
        over = "" if verdict.rounded_err is None else " of the reference over inputs rounded as it does"
        return {**words, "status": "wrong", "reason": f"relative error{over} above {verdict.tolerance:g}"}
    return words


def _fault(fault: Fault, status: str) -> Told:
    return {"status": "unavailable" if fault.is_memory else status, "reason": fault.reason}


def _give_back(device: Device) -> None:
    """Graphs keep pools of their own; without this a long run fragments the memory until large inputs do not fit."""
    if device.kind == "cuda" and torch.cuda.memory_reserved() > torch.cuda.get_device_properties().total_memory // 2:
        torch.cuda.empty_cache()
