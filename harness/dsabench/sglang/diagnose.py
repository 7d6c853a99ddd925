"""Why an sglang process ended, from its whole log: the lines near the end are often only the clean-up.

The launcher kills its own process tree when a child fails (SIGKILL, itself included), so neither exit code nor signal
says what happened. The words are in `failures.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from dsabench.errors import TrialFault
from dsabench.model.record import FaultKind
from dsabench.model.tables import read_table
from dsabench.runtimes.faults import redact

_EXCERPT_BEFORE, _EXCERPT_AFTER = 24, 12
_STAMP = re.compile(r"^(?:\[?rank\d+\]?:\s*)?\[[^\]]*\d\d:\d\d:\d\d[^\]]*\] ?(?:(?:ERROR|CRITICAL): ?)?")
_REFINED: frozenset[FaultKind] = frozenset({"exited", "killed", "illegal_config", "out_of_memory", "missing_file"})
"""What an ending alone suggests, and the log may say better."""

_OOM = re.compile(r"(?:CUDA|HIP|NPU) out of memory|OutOfMemoryError|cudaErrorMemoryAllocation", re.IGNORECASE)
_DETAILS = " Including non-PyTorch memory"
"""Where PyTorch's sentence goes on to its own allocator."""
_FRAME = re.compile(r"^\s*File .*, line \d+, in (\w+)")
_PREFILL = frozenset({"forward_extend", "_execute_extend"})
_PYTORCHS = frozenset({"__call__", "_call_impl", "_wrapped_call_impl", "decorate_context", "wrapper"})
_READY = re.compile(r"fired up and ready to roll")


def _signs(section: str) -> tuple[tuple[FaultKind, re.Pattern[str]], ...]:
    """Kind → its signs; neighbours of one kind are one pattern, of which the first line counts."""
    rows: Any = read_table("failures.yaml", __package__)[section]
    return tuple(
        (kind, re.compile("|".join(f"(?:{row['sign']})" for row in alike)))
        for kind, alike in groupby(rows, key=lambda row: row["kind"])
    )


_FIRST, _CERTAIN, _IN_TRACEBACK, _PHASES = map(_signs, ("first", "certain", "in_traceback", "phases"))
_NEIGHBOURS = re.compile(r"^RuntimeError: .*Some GPUs may be occupied by other processes")
"""Memory that somebody else has: the same setting boots when it is free again."""
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
    where: str = ""
    """The function whose step was out of memory."""


def diagnose(log: str, *, booting: bool, killed: bool = False) -> Cause | None:
    """Return the cause that the log names, or None. A Python error is a refusal of the settings only while `booting`, and
    only if the server was not ready before it.

    Of a process that was `killed` a traceback is its end only where the launcher says that a child failed: requests leave
    tracebacks too, and somebody from outside may have killed a healthy server.
    """
    lines = log.splitlines()
    for kind, sign in _FIRST:
        if (found := _first(lines, sign)) is not None:
            return _cause(kind, found, lines)
    certain = [_cause(kind, at, lines) for kind, sign in _CERTAIN if (at := _first(lines, sign)) is not None]
    certain += [memory] if (memory := _memory(lines)) is not None else []
    if certain:
        return min(certain, key=lambda cause: cause.line)
    died = _first(lines, _CHILD_DIED)
    ended = _last_words(lines, any_traceback=died is not None or not killed)
    begun, until = (0, len(lines)) if ended is None else ended
    for kind, sign in _IN_TRACEBACK:
        if (at := _first(lines[begun:until], sign)) is not None:
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


def refine(fault: TrialFault, log: str, env: dict[str, str], *, fits: str = "") -> TrialFault:
    """The same fault with the kind, line and excerpt that the whole log gives; unchanged where it gives none.

    `fits` is the nearest setting whose prefill steps should fit, in words.
    """
    if fault.kind not in _REFINED:
        return fault
    cause = diagnose(log, booting=fault.stage == "boot", killed=fault.kind == "killed")
    if cause is None:
        return fault
    lines = log.splitlines()
    excerpt = lines[max(0, cause.line - _EXCERPT_BEFORE) : cause.line + _EXCERPT_AFTER]
    tail = redact("\n".join(line.rpartition("\r")[2] for line in excerpt), env)
    message = redact(cause.message, env)
    if cause.where:
        told = message.partition(_DETAILS)[0]
        message = f"{told} In {cause.where} of a prefill step{f'; {fits}' if fits else ''}"
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
            frames = _frames_above(lines, at) if phase == "out_of_memory" else []
            if _PREFILL.isdisjoint(frames):
                return _cause(phase, at, lines)
            own = [name for name in frames if name not in _PYTORCHS]
            return replace(_cause("prefill_out_of_memory", at, lines), where=own[-1])
        phase = next((kind for kind, sign in _PHASES if sign.search(line)), phase)
    return None


def _frames_above(lines: Sequence[str], at: int) -> list[str]:
    """The functions of the traceback that ends here, the innermost last."""
    begun = next((place for place in reversed(range(at)) if _TRACEBACK.search(lines[place])), at)
    return [found[1] for line in lines[begun:at] if (found := _FRAME.match(line))]


def _first(lines: Sequence[str], sign: re.Pattern[str]) -> int | None:
    return next((at for at, line in enumerate(lines) if sign.search(line) and not _HARMLESS.search(line)), None)


def _cause(kind: FaultKind, at: int, lines: Sequence[str]) -> Cause:
    return Cause(kind, at, _plain(lines[at])[:500])


def _plain(line: str) -> str:
    """A line without the stamp before it and without what a progress bar wrote over."""
    return _STAMP.sub("", line.rpartition("\r")[2]).strip()
