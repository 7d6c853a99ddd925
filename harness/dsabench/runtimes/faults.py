"""What went wrong with a server, from how it ended and from what it wrote last."""

from __future__ import annotations

import errno
import os
import re
import signal
from dataclasses import dataclass

from dsabench.errors import TrialFault
from dsabench.model.record import FaultKind, Stage

_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
"""Signals that a program does not send itself when it crashes."""
_SIGNS: tuple[tuple[FaultKind, re.Pattern[str]], ...] = (
    (
        "out_of_memory",
        re.compile(r"out of memory|OutOfMemory|not enough memory|allocate memory|MemoryError", re.IGNORECASE),
    ),
    ("port_in_use", re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)),
    ("disk_full", re.compile(r"no space left on device|ENOSPC|disk quota exceeded", re.IGNORECASE)),
    (
        "missing_file",
        re.compile(r"no such file or directory|can't open file|No module named|FileNotFoundError", re.IGNORECASE),
    ),
)
_STEPS = {
    "folder": "cannot make {}",
    "cwd": "cannot enter the server's working directory",
    "log": "cannot write the server's log",
    "cores": "cannot pin the server to its cores",
    "exec": "cannot run {}",
}
_ERROR_LINE = re.compile(r"\berror: (.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ended by itself: with a code, by a signal, or, neither known, because its keeper was killed."""

    code: int | None = None
    signal: int | None = None
    oom_killed: bool = False
    """The kernel counted an out-of-memory kill in this program's lifetime."""
    complaint: str = ""
    """The keeper's own last words, where it failed instead of being killed."""


def fault_of_ending(ending: Ending, log_tail: str, stage: Stage) -> TrialFault:
    """Name the failure. Only faults that another try may not meet again are transient."""
    kind, message = _diagnose(ending, log_tail)
    return TrialFault(kind, message, stage=stage, log_tail=log_tail, transient=kind in {"killed", "port_in_use"})


def fault_of_start(step: str, number: int, subject: str) -> TrialFault:
    """A program that could not even be started: `step` and errno are the keeper's, `subject` is a path or a program."""
    reason = os.strerror(number)
    kind: FaultKind = "missing_file"
    if number in {errno.ENOSPC, errno.EDQUOT}:
        kind = "disk_full"
    elif step == "cores":
        kind = "illegal_config"
    return TrialFault(kind, f"{_STEPS[step].format(subject)}: {reason}", stage="boot")


def _diagnose(ending: Ending, log_tail: str) -> tuple[FaultKind, str]:
    if ending.code is None and ending.signal is None:
        failed: tuple[FaultKind, str] = ("internal", f"its keeper failed: {ending.complaint}")
        return failed if ending.complaint else ("killed", "its keeper was killed from outside")
    sign = _sign(log_tail)
    last = _last_line(log_tail)
    said = f": {last}" if last else ""
    number = _signal_of(ending)
    if number is None:
        return _diagnose_code(ending.code, sign, log_tail, said)
    if ending.oom_killed:
        return "out_of_memory", "killed by the kernel, which was out of memory"
    if number not in _FROM_OUTSIDE:
        return sign or ("exited", f"crashed with {number.name}{said}")
    if sign and sign[0] == "out_of_memory":
        return sign
    return "killed", f"killed from outside by {number.name}"


def _diagnose_code(
    code: int | None, sign: tuple[FaultKind, str] | None, log_tail: str, said: str
) -> tuple[FaultKind, str]:
    """A program that refuses its arguments exits with 2, but so does an interpreter that does not find its script."""
    if sign and (code != 2 or sign[0] == "missing_file"):
        return sign
    if code == 2:
        return "illegal_config", _error_line(log_tail) or "exited with code 2 and said nothing"
    return "exited", f"exited with code {code}{said}"


def _signal_of(ending: Ending) -> signal.Signals | None:
    """The signal, also where a shell or a container between us made 128 + n of it."""
    number = ending.signal
    if number is None and ending.code in {137, 143}:
        number = ending.code - 128
    try:
        return None if number is None else signal.Signals(number)
    except ValueError:  # a real-time signal without a name
        return signal.SIGUSR1


def _sign(log_tail: str) -> tuple[FaultKind, str] | None:
    """The latest line that names a known cause, and that cause."""
    for line in reversed(log_tail.splitlines()):
        for kind, pattern in _SIGNS:
            if pattern.search(line):
                return kind, line.strip()
    return None


def _error_line(log_tail: str) -> str:
    """What a program says when it refuses its arguments, as argparse writes it; else its last line."""
    errors = [found[1].strip() for line in log_tail.splitlines() if (found := _ERROR_LINE.search(line))]
    return errors[-1] if errors else _last_line(log_tail)


def _last_line(log_tail: str) -> str:
    return next((line.strip() for line in reversed(log_tail.splitlines()) if line.strip()), "")
