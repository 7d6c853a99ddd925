"""What a worker does with its request (`worker.py`): finds candidates, runs kernels, says what came of it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from typing import TextIO

import torch

from dsabench.kernelbench import measure, selection
from dsabench.kernelbench.correctness import ContextLostError
from dsabench.kernelbench.request import KernelBenchRequest, read_points, read_request
from dsabench.kernelbench.selection import works
from dsakernels.candidates.candidate import KernelCandidate, KernelDevice, why_not_here
from dsakernels.operator import Operator

_ACTS = {"check": measure.check_all, "bench": measure.bench_all}


def answer() -> None:
    """Answer one request, read from standard input."""
    emit = _emitter(_private_stdout())
    request = read_request(sys.stdin.readline())
    torch.set_num_threads(request.threads or len(os.sched_getaffinity(0)))
    torch.set_grad_enabled(False)
    try:
        _answer(emit, request)
    except selection.UnknownNameError as error:
        emit("mistake", message=str(error))
    except ContextLostError:
        emit("lost")
        return
    emit("end")


def _answer(emit: measure.Emit, request: KernelBenchRequest) -> None:
    device = selection.device_of(request)
    operators = selection.operators(request)
    selection.refuse_what_fits_nothing(request, operators)
    emit("device", **_about(device))
    done = read_points(sys.stdin.readline())
    chosen = [(operator, _runnable(emit, request, operator, device)) for operator in operators]
    if request.action not in _ACTS:
        return
    every, rest = works(request, chosen, device), works(request, chosen, device, done)
    if any(runnable for _, runnable in chosen) and not every:
        raise selection.UnknownNameError("no candidate asked for has a shape asked for in a dtype asked for")
    emit("asked", points=measure.count(every), known=measure.count(every) - measure.count(rest))
    _ACTS[request.action](emit, request, rest, device)


def _about(device: KernelDevice) -> dict[str, object]:
    packages = (
        *("sglang", "sglang-kernel", "sgl-kernel", "sgl-flash-mla", "sgl-deep-gemm", "flashinfer-python"),
        *("tilelang", "aiter", "triton"),
    )
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


def _runnable(
    emit: measure.Emit, request: KernelBenchRequest, operator: Operator, device: KernelDevice
) -> list[KernelCandidate]:
    runnable = []
    for candidate in selection.candidates(request, operator):
        reason = _unasked(request, candidate)
        if reason is None:
            if candidate.package is not None:
                emit("doing", what=f"importing {candidate.package.module}, for {candidate.name}")
            reason = why_not_here(candidate, device)
        emit("candidate", operator=operator.name, candidate=candidate.name, does=candidate.does,
            dtypes=candidate.dtypes, reason=reason)  # fmt: skip
        if reason is None:
            runnable.append(candidate)
    return runnable


def _unasked(request: KernelBenchRequest, candidate: KernelCandidate) -> str | None:
    """Why there is nothing to run it on, whatever the machine."""
    if not request.dtypes or set(request.dtypes) & set(candidate.dtypes):
        return None
    return f"takes {', '.join(candidate.dtypes)}, asked for was {', '.join(request.dtypes)}"


def _private_stdout() -> TextIO:
    """Our own copy of standard output; what else is printed goes to standard error."""
    mine = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return mine


def _emitter(stream: TextIO) -> measure.Emit:
    def emit(what: str, /, **fields: object) -> None:
        print(json.dumps({"is": what, **fields}, allow_nan=False), file=stream, flush=True)

    return emit
