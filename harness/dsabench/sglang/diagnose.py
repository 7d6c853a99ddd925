"""Why an sglang process ended, from its whole log: the lines near the end are often only the clean-up.

The launcher kills its own process tree when a child fails (SIGKILL, itself included), so neither exit code nor signal
says what happened. The words are those of 0.5.9 to 0.5.23 and of the libraries below (PyTorch, NCCL, Triton, DeepGEMM).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dsabench.errors import TrialFault
from dsabench.model.record import FaultKind
from dsabench.runtimes.log_tail import redact

_EXCERPT_BEFORE, _EXCERPT_AFTER = 24, 12
_STAMP = re.compile(r"^(?:\[?rank\d+\]?:\s*)?\[[^\]]*\d\d:\d\d:\d\d[^\]]*\] ?(?:(?:ERROR|CRITICAL): ?)?")
_REFINED: frozenset[FaultKind] = frozenset({"exited", "killed", "illegal_config", "out_of_memory", "missing_file"})
"""What an ending alone suggests, and the log may say better."""

_OOM = re.compile(r"(?:CUDA|HIP|NPU) out of memory|OutOfMemoryError|cudaErrorMemoryAllocation", re.IGNORECASE)
_READY = re.compile(r"fired up and ready to roll")
_PHASES: tuple[tuple[re.Pattern[str], FaultKind], ...] = (
    (_READY, "out_of_memory"),
    (re.compile(r"Capture .*graph begin|KV [Cc]ache (?:is )?allocated|Memory pool end"), "graph_out_of_memory"),
    (re.compile(r"Load weight end"), "kv_pool_out_of_memory"),
    (re.compile(r"Load weight begin"), "weights_out_of_memory"),
)
"""The last of these lines before the error says what memory was being taken for."""

_SIGNS: tuple[tuple[FaultKind, re.Pattern[str]], ...] = (
    (
        "bad_arguments",
        re.compile(
            r"error: (?:unrecognized arguments|argument \S+.*: (?:invalid|expected|not allowed)|ambiguous option"
            r"|the following arguments are required)"
        ),
    ),
    (
        "kv_pool_out_of_memory",
        re.compile(r"Not enough memory\. Please try to (?:in|de)crease|leave no GPU memory for the KV cache"),
    ),
    (
        "nccl_timeout",
        re.compile(
            r"Watchdog caught collective operation timeout|NCCL operations have failed or timed out"
            r"|Timed out (?:after|waiting).*(?:clients|store|connect)|DistStoreError|wait timeout after \d+ms"
            r"|ncclRemoteError|socketPollConnect.*(?:timed out|failed)"
        ),
    ),
    ("watchdog", re.compile(r"(?<!soft )\bwatchdog timeout\b|Watchdog timeout \(", re.IGNORECASE)),
    (
        "nan",
        re.compile(r"NaN in the (?:logits|prob)|Detected errors during sampling|probability tensor contains either"),
    ),
    (
        "gpu_error",
        re.compile(
            r"an illegal (?:memory access|instruction) was encountered|device-side assert triggered|misaligned address$"
            r"|unspecified launch failure|no kernel image is available for execution|uncorrectable ECC error"
            r"|CUDA_ERROR_(?!OUT_OF_MEMORY)[A-Z_]+|CUBLAS_STATUS_(?!ALLOC_FAILED)[A-Z_]+|Error occurred when running GEMM"
            r"|HSA_STATUS_ERROR\w*|Memory access fault by GPU|hipError(?:IllegalAddress|LaunchFailure)"
        ),
    ),
    (
        "jit_compile",
        re.compile(
            r"NVCC compilation failed|nvcc fatal|ninja: build stopped|Error building extension|ptxas (?:fatal|error)"
            r"|Ninja build failed|triton\.compiler\.errors|CompilationError|PassManager::run failed"
            r"|Could not find (?:nvcc|CUDA)|CUDA_HOME environment variable is not set|NVCC version should be"
        ),
    ),
    ("out_of_memory", re.compile(r"\b(?:Prefill|Decode) out of memory\b")),
    ("port_in_use", re.compile(r"address already in use|EADDRINUSE|port \d+ is (?:already )?in use", re.IGNORECASE)),
    ("disk_full", re.compile(r"no space left on device|ENOSPC|disk quota exceeded", re.IGNORECASE)),
    (
        "missing_file",
        re.compile(
            r"FileNotFoundError|No such file or directory|does not appear to have a file named|ModuleNotFoundError"
            r"|No module named|is not a local folder and is not a valid model|Repository Not Found|LocalEntryNotFound"
            r"|Can't load (?:the configuration|tokenizer)|Cannot find any model weights|couldn't connect to .*hugging"
            r"|Transformers does not recognize this architecture|ImportError: .* is not installed|SafetensorError: "
        ),
    ),
    (
        "out_of_memory",
        re.compile(
            r"MemoryError|[Cc]annot allocate memory|can't allocate memory|pinned memory.*(?:fail|exceed)"
            r"|Not enough host memory available|RuntimeError: The memory capacity is unbalanced"
        ),
    ),
)
"""The first two win over all others, wherever they stand."""
_NEIGHBOURS = re.compile(r"^RuntimeError: .*Some GPUs may be occupied by other processes")
"""Memory that somebody else has: the same setting boots when it is free again."""
_CERTAIN: frozenset[FaultKind] = frozenset({"nccl_timeout", "watchdog", "nan", "gpu_error", "jit_compile"})
"""Words of an end whichever line says them. Of several the earliest is the cause: the others follow from it. The rest may
stand in the log of a server that goes on, and count in the traceback of its end, where there is one."""
_HIT = re.compile(r"Scheduler hit an exception")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Failure)\b")
_CHAINED = re.compile(r"^(?:During handling of the above|The above exception was)")
_CHILD_DIED = re.compile(
    r"Received sigquit from a child process|[Ss]cheduler (?:is dead|died)|Fatal Python error|Subprocess .* crashed"
)
"""What the launcher writes before it kills itself and all its children."""
_HARMLESS = re.compile(
    r"generation_config|Proceeding without|[Ff]alling back|using default|Ignore import error", re.IGNORECASE
)
"""What every boot may say and go on."""
_REFUSAL = re.compile(
    r"^(?:(?:\w+\.)*(?:ValueError|AssertionError|NotImplementedError|KeyError|TypeError)\b:?.*"
    r"|RuntimeError: .*\bmust have (?:the same )?dtype\b.*)"
)
"""An exception with which argument resolution, the construction of a kernel, or a kernel given another dtype than it
reads, refuses a setting."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What a log says of the end, and in which of its lines."""

    kind: FaultKind
    line: int
    message: str


def diagnose(log: str, *, booting: bool, killed: bool = False) -> Cause | None:
    """Return the cause that the log names, or None. A Python error is a refusal of the settings only while `booting`, and
    only if the server was not ready before it.

    Of a process that was `killed` a traceback is its end only where the launcher says that a child failed: requests leave
    tracebacks too, and somebody from outside may have killed a healthy server.
    """
    lines = log.splitlines()
    for kind, sign in _SIGNS[:2]:
        if (found := _first(lines, sign)) is not None:
            return _cause(kind, found, lines)
    certain = [
        _cause(kind, at, lines) for kind, sign in _SIGNS if kind in _CERTAIN and (at := _first(lines, sign)) is not None
    ]
    certain += [memory] if (memory := _memory(lines)) is not None else []
    if certain:
        return min(certain, key=lambda cause: cause.line)
    died = _first(lines, _CHILD_DIED)
    ended = _last_words(lines, any_traceback=died is not None or not killed)
    begun, until = (0, len(lines)) if ended is None else ended
    for kind, sign in _SIGNS[2:]:
        if kind not in _CERTAIN and (at := _first(lines[begun:until], sign)) is not None:
            return _cause(kind, begun + at, lines)
    # A server can log that it is ready, and die before it answers the first request of the boot.
    can_refuse = booting and _first(lines[:until], _READY) is None
    if ended is not None:
        is_refusal = can_refuse and _REFUSAL.match(_plain(lines[until - 1]))
        return _cause("illegal_config" if is_refusal else "exited", until - 1, lines)
    refusals = [at for at, line in enumerate(lines) if _REFUSAL.match(_plain(line))]
    if can_refuse and refusals:
        return _cause("illegal_config", refusals[-1], lines)
    return None if died is None else _cause("exited", died, lines)


def refine(fault: TrialFault, log: str, env: dict[str, str]) -> TrialFault:
    """The same fault with the kind, line and excerpt that the whole log gives; unchanged where it gives none."""
    if fault.kind not in _REFINED:
        return fault
    cause = diagnose(log, booting=fault.stage == "boot", killed=fault.kind == "killed")
    if cause is None:
        return fault
    lines = log.splitlines()
    excerpt = lines[max(0, cause.line - _EXCERPT_BEFORE) : cause.line + _EXCERPT_AFTER]
    tail = redact("\n".join(line.rpartition("\r")[2] for line in excerpt), env)
    message = redact(cause.message, env)
    transient = cause.kind in {"port_in_use", "nccl_timeout"} or _NEIGHBOURS.search(message) is not None
    return TrialFault(cause.kind, message, stage=fault.stage, log_tail=tail, transient=transient)


def _last_words(lines: Sequence[str], *, any_traceback: bool) -> tuple[int, int] | None:
    """Where the traceback of the end begins, and behind its exception: a scheduler's first one, else the last of all."""
    begun = _first(lines, _HIT)
    if begun is None and any_traceback:
        begun = next((at for at in reversed(range(len(lines))) if _TRACEBACK.search(lines[at])), None)
        begun = None if begun is None else _begin_of_chain(lines, begun)
    if begun is None:
        return None
    end = None
    for at in range(begun + 1, len(lines)):
        plain = _plain(lines[at])
        if _EXCEPTION.match(plain) and not lines[at].startswith((" ", "\t")):
            end = at + 1
        elif end is not None and plain and not _goes_on(lines, at):
            break
    return None if end is None else (begun, end)


def _goes_on(lines: Sequence[str], at: int) -> bool:
    """Whether a line belongs to a chain of exceptions: the words between two of them, or a frame of the next."""
    plain = _plain(lines[at])
    return bool(
        _CHAINED.match(plain) or _TRACEBACK.search(plain) or plain.startswith("File ") or lines[at][:1] in " \t"
    )


def _begin_of_chain(lines: Sequence[str], traceback: int) -> int:
    """The first traceback of the chain that this one ends."""
    above = [at for at in range(traceback) if _plain(lines[at])]
    if not above or not _CHAINED.match(_plain(lines[above[-1]])):
        return traceback
    earlier = next((at for at in reversed(range(above[-1])) if _TRACEBACK.search(lines[at])), None)
    return traceback if earlier is None else _begin_of_chain(lines, earlier)


def _memory(lines: Sequence[str]) -> Cause | None:
    phase: FaultKind = "weights_out_of_memory"
    for at, line in enumerate(lines):
        if _OOM.search(line):
            return _cause(phase, at, lines)
        phase = next((kind for sign, kind in _PHASES if sign.search(line)), phase)
    return None


def _first(lines: Sequence[str], sign: re.Pattern[str]) -> int | None:
    return next((at for at, line in enumerate(lines) if sign.search(line) and not _HARMLESS.search(line)), None)


def _cause(kind: FaultKind, at: int, lines: Sequence[str]) -> Cause:
    return Cause(kind, at, _plain(lines[at])[:500])


def _plain(line: str) -> str:
    """A line without the stamp before it and without what a progress bar wrote over."""
    return _STAMP.sub("", line.rpartition("\r")[2]).strip()
