"""The process that runs kernels: `python -m dsabench.microbench.worker`, a request in, lines of JSON out.

Every line has `is`: `device` (first), `candidate`, `start` (before a point, so that a crash can be laid to it), `check`,
`point`, `mistake` (of the request), `end`. What kernels and compilers print goes to standard error.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TextIO

import torch

from dsabench.microbench import choose
from dsabench.microbench.ceilings import Ceilings, measure_ceilings
from dsabench.microbench.check import Verdict, check
from dsabench.microbench.gpu_state import read_state
from dsabench.microbench.request import Limits, Point, Request, read_request
from dsabench.microbench.summary import instability, summarise
from dsabench.microbench.timers import CudaTimer, timer_for
from dsakernels.candidates.candidate import Call, Candidate, Device, obstacle
from dsakernels.operator import Dtype, Operator
from dsakernels.shape import Shape

Say = Callable[..., None]
Case = tuple[Shape, Dtype]
_FAULTS = (RuntimeError, ValueError, TypeError, AttributeError, AssertionError, LookupError, ImportError, OSError)
"""What kernels, compilers and their bindings raise."""
_ROTATED_BYTES = 1 << 28


def main() -> None:
    """Answer one request."""
    say = _speaker(_private_stdout())
    request = read_request(sys.stdin.readline())
    torch.set_num_threads(request.threads or len(os.sched_getaffinity(0)))
    torch.set_grad_enabled(False)
    try:
        device = choose.device_of(request)
        say("device", **_about(device))
        chosen = [(operator, _runnable(say, request, operator, device)) for operator in choose.operators(request)]
        if request.action == "check":
            for operator, runnable in chosen:
                _check_all(say, request, operator, runnable, device)
        elif request.action == "bench":
            _bench_all(say, request, chosen, device)
    except choose.UnknownNameError as error:
        say("mistake", message=str(error))
    say("end")


def _about(device: Device) -> dict[str, object]:
    packages = ("sglang-kernel", "sgl-kernel", "sgl-flash-mla", "flashinfer-python", "tilelang", "aiter", "triton")
    versions = {name: version for name in packages if (version := _version(name))}
    name = torch.cuda.get_device_name() if device.kind == "cuda" else platform.machine()
    return {
        "kind": device.kind, "arch": device.arch, "name": name, "torch": torch.__version__,
        "python": platform.python_version(), "threads": torch.get_num_threads(), "packages": versions,
    }  # fmt: skip


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _runnable(say: Say, request: Request, operator: Operator, device: Device) -> list[Candidate]:
    runnable = []
    for candidate in choose.candidates(request, operator):
        reason = obstacle(candidate, device)
        say("candidate", operator=operator.name, candidate=candidate.name, does=candidate.does,
            dtypes=candidate.dtypes, reason=reason)  # fmt: skip
        if reason is None:
            runnable.append(candidate)
    return runnable


def _points(
    request: Request, operator: Operator, runnable: list[Candidate], device: Device
) -> Iterator[tuple[Point, Candidate, Shape, Dtype]]:
    """Shape by shape, so that the candidates of one shape are measured close together."""
    for shape in choose.shapes(request, operator, device):
        for dtype in operator.dtypes:
            for candidate in runnable:
                point = Point(operator.name, candidate.name, shape.id, dtype)
                wanted = dtype in candidate.dtypes and (not request.dtypes or dtype in request.dtypes)
                if wanted and point not in request.skip:
                    yield point, candidate, shape, dtype


def _check_all(say: Say, request: Request, operator: Operator, runnable: list[Candidate], device: Device) -> None:
    for point, candidate, shape, dtype in _points(request, operator, runnable, device):
        if candidate.limit(shape) is not None:
            continue
        say("start", **point._asdict())
        try:
            verdict = check(operator, candidate, shape, dtype, device.kind, seed=request.seed)
        except _FAULTS as error:
            say("check", **point._asdict(), status="wrong", reason=_first_line(error))
        else:
            say("check", **point._asdict(), **_words(verdict))


def _bench_all(say: Say, request: Request, chosen: list[tuple[Operator, list[Candidate]]], device: Device) -> None:
    deadline = None if request.budget_s is None else time.monotonic() + request.budget_s
    ceilings = measure_ceilings(device.kind)
    say("ceilings", **asdict(ceilings))
    left = 0
    for operator, runnable in chosen:
        for point, candidate, shape, dtype in _points(request, operator, runnable, device):
            if deadline is not None and time.monotonic() > deadline:
                left += 1
                continue
            say("start", **point._asdict())
            reason = candidate.limit(shape)
            if reason is not None:
                say("point", **point._asdict(), status="unavailable", reason=reason)
                continue
            try:
                found = _bench(request, operator, candidate, (shape, dtype), device.kind)
            except _FAULTS as error:
                say("point", **point._asdict(), status="failed", reason=_first_line(error))
                continue
            say("point", **point._asdict(), **found, **_floor(operator, shape, dtype, ceilings))
    say("left", points=left)


def _bench(request: Request, operator: Operator, candidate: Candidate, what: Case, kind: str) -> dict[str, object]:
    """Right first, then timed."""
    shape, dtype = what
    verdict = check(operator, candidate, shape, dtype, kind, seed=request.seed)
    if not verdict.is_right:
        return _words(verdict)
    sets = 4 if operator.cost(shape, dtype).bytes < _ROTATED_BYTES else 2
    calls: list[Call] = []
    for index in range(sets):
        generator = torch.Generator(kind).manual_seed(request.seed + 1000 + index)
        calls.append(candidate.bind(operator.make(shape, dtype, generator)))
    return {**_words(verdict), **_time(calls, kind, request.limits)}


def _time(calls: list[Call], kind: str, limits: Limits) -> dict[str, object]:
    timer = timer_for(kind, calls)
    start = time.monotonic()
    samples = [timer.sample() for _ in range(limits.min_samples)]
    reason = instability(samples, limits.half_width)
    while reason and len(samples) < limits.max_samples and time.monotonic() - start < limits.max_s:
        samples += [timer.sample() for _ in range(limits.min_samples)]
        reason = instability(samples, limits.half_width)
    state = read_state(f"GPU-{torch.cuda.get_device_properties().uuid}") if kind == "cuda" else None
    about: dict[str, object] = {}
    if state is not None:  # read while the clocks are still what the samples made them
        about = {"sm_mhz": state.sm_mhz, "memory_mhz": state.memory_mhz, "temperature_c": state.temperature_c}
        reason = f"the GPU was throttled: {state.throttled}" if state.throttled else reason
    if isinstance(timer, CudaTimer):
        about["graph"] = timer.is_graph
    if reason is not None:
        return {**about, "status": "unstable", "reason": reason}
    return {**about, **asdict(summarise(samples))}


def _floor(operator: Operator, shape: Shape, dtype: Dtype, ceilings: Ceilings) -> dict[str, object]:
    """The least work and the time that it takes at the ceilings."""
    cost = operator.cost(shape, dtype)
    floor_us = max(cost.bytes / ceilings.tb_s, cost.flops / ceilings.tflop_s) / 1e6
    return {"bytes": cost.bytes, "flops": cost.flops, "floor_us": floor_us}


def _words(verdict: Verdict) -> dict[str, object]:
    words: dict[str, object] = {"status": "ok", "rel_err": verdict.rel_err, "rows_checked": verdict.rows}
    if verdict.rel_err is None:
        return {**words, "status": "wrong", "reason": "an output is not finite"}
    if not verdict.is_right:
        return {**words, "status": "wrong", "reason": f"relative error above {verdict.tolerance:g}"}
    return words


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def _private_stdout() -> TextIO:
    """Our own copy of standard output; what else is printed goes to standard error."""
    mine = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return mine


def _speaker(stream: TextIO) -> Say:
    def say(what: str, /, **fields: object) -> None:
        print(json.dumps({"is": what, **fields}, allow_nan=False), file=stream, flush=True)

    return say


if __name__ == "__main__":
    main()
