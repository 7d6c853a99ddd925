"""What went wrong with a server, from how it ended and from what it wrote last; and faults that are found on leaving."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from dsabench.errors import TrialFault
from dsabench.model.record import FaultKind, Stage
from dsabench.model.secrets import hide_keys, looks_secret

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


MAX_LINES = 40
MAX_BYTES = 8192
_PLAIN_VALUE = re.compile(r"(true|false|none|null|auto|yes|no|on|off|-?\d{1,5})?", re.IGNORECASE)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f]")


def read_tail(log: Path, *, start: int, env: Mapping[str, str]) -> str:
    """The last lines written after byte `start`; empty where the log cannot be read.

    Of a line that a progress bar wrote over, the last state is kept. The values of variables in `env` whose names speak
    of tokens, keys, secrets or passwords are replaced by their names.
    """
    try:
        with log.open("rb") as file:
            # A device has no end to count from: its size is 0.
            file.seek(max(start, log.stat().st_size - MAX_BYTES))
            data = file.read(MAX_BYTES)
    except OSError:
        return ""
    lines = (line.rstrip().rpartition("\r")[2] for line in data.decode(errors="replace").split("\n"))
    text = "\n".join([_ESCAPES.sub("", line) for line in lines][-MAX_LINES:]).strip("\n")
    return redact(text, env)


def redact(text: str, env: Mapping[str, str]) -> str:
    """The text with the values of secret variables replaced by `<NAME>`."""
    secrets = [(value, name) for name, value in env.items() if looks_secret(name) and not _PLAIN_VALUE.fullmatch(value)]
    for value, name in sorted(secrets, key=lambda secret: -len(secret[0])):  # one may be part of another
        text = text.replace(value, f"<{name}>")
    return hide_keys(text)


def raise_or_note(fault: TrialFault | None, under_way: BaseException | None) -> None:
    """Raise the fault; where another error is under way, add it to that one as a note."""
    if fault is None:
        return
    if under_way is None:
        raise fault
    under_way.add_note(str(fault))


@dataclass(frozen=True, slots=True)
class CheckedAfter:
    """`async with CheckedAfter(check):` asks on leaving, however it is left, what is still there.

    Leaving raises the TrialFault that `check` gives. As a note where another error is under way.
    """

    check: Callable[[], Awaitable[TrialFault | None]]

    async def __aenter__(self) -> None:
        """Nothing to begin."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise_or_note(await self.check(), error)
