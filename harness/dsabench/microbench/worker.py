"""The process that runs kernels: `python -m dsabench.microbench.worker`, a request in, lines of JSON out.

Every line has `is`: `device` (first), `candidate`, `start` (before a candidate runs, so that a crash can be laid to
it), `check`, `point`, `pair`, `ceilings`, `mistake` (of the request), `lost` (an illegal access ended the CUDA context;
another process has to go on), `end`. What kernels and compilers print goes to standard error.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from typing import TextIO

import torch

from dsabench.microbench import choose, points
from dsabench.microbench.check import ContextLostError
from dsabench.microbench.request import Request, read_request
from dsakernels.candidates.candidate import Candidate, Device, obstacle
from dsakernels.operator import Operator

_ACTS = {"check": points.check_all, "bench": points.bench_all, "twice": points.time_twice}


def main() -> None:
    """Answer one request."""
    say = _speaker(_private_stdout())
    request = read_request(sys.stdin.readline())
    torch.set_num_threads(request.threads or len(os.sched_getaffinity(0)))
    torch.set_grad_enabled(False)
    try:
        _answer(say, request)
    except choose.UnknownNameError as error:
        say("mistake", message=str(error))
    except ContextLostError:
        say("lost")
        return
    say("end")


def _answer(say: points.Say, request: Request) -> None:
    device = choose.device_of(request)
    say("device", **_about(device))
    if request.action == "device":
        return
    chosen = [(operator, _runnable(say, request, operator, device)) for operator in choose.operators(request)]
    if request.action in _ACTS:
        _ACTS[request.action](say, request, chosen, device)


def _about(device: Device) -> dict[str, object]:
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


def _runnable(say: points.Say, request: Request, operator: Operator, device: Device) -> list[Candidate]:
    runnable = []
    for candidate in choose.candidates(request, operator):
        reason = obstacle(candidate, device)
        say("candidate", operator=operator.name, candidate=candidate.name, does=candidate.does,
            dtypes=candidate.dtypes, reason=reason)  # fmt: skip
        if reason is None:
            runnable.append(candidate)
    return runnable


def _private_stdout() -> TextIO:
    """Our own copy of standard output; what else is printed goes to standard error."""
    mine = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return mine


def _speaker(stream: TextIO) -> points.Say:
    def say(what: str, /, **fields: object) -> None:
        print(json.dumps({"is": what, **fields}, allow_nan=False), file=stream, flush=True)

    return say


if __name__ == "__main__":
    main()
