"""The tree of errors, and helpers for their messages. Only the CLI turns one into an exit code; only `study/trial.py` turns a `TrialFault` into a record.

DsabenchError
├── InputError        the user's input is wrong: one line, exit 2
│   ├── ConfigError   a YAML file: file, line, key, what is allowed, nearest match
│   └── BusyError     somebody else holds the results folder
├── TrialFault        a runtime or a measurement failed: becomes a `Failed` record, exit 3 where nothing else came out
├── StoreError        the journal cannot be written or read (disk full, permission): exit 3
├── MachineGone       a machine of a cluster boots no more: the others go on, exit 3 where none is left
└── HttpFault         no whole answer came; whoever asked makes it one of the others
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dsabench.model.record import FaultKind, Stage


class DsabenchError(Exception):
    """Root of all errors that dsabench raises on purpose."""


class InputError(DsabenchError):
    """The user's input is wrong. `str(error)` is one line that says what to change."""


class ConfigError(InputError):
    """One mistake in a YAML file, as `file:line: key: message`."""

    def __init__(self, message: str, *, file: str, line: int | None = None, key: str | None = None) -> None:
        self.message, self.file, self.line, self.key = message, file, line, key
        place = file if line is None else f"{file}:{line}"
        super().__init__(": ".join(part for part in (place, key, message) if part))


class BusyError(InputError):
    """Another process holds what this one needs. The message names it."""


class StoreError(DsabenchError):
    """Results could not be written or read, for a reason other than the user's input (disk full, permission)."""


class MachineGone(DsabenchError):
    """A machine of a cluster does not boot any more. What it had under way has its records."""


class TrialFault(DsabenchError):
    """A runtime or a measurement failed. It becomes a `Failed` record.

    A `transient` fault (port taken, killed from outside, client late because of other processes) is retried once,
    as a new occasion.
    """

    def __init__(
        self, kind: FaultKind, message: str, *, stage: Stage, log_tail: str = "", transient: bool = False
    ) -> None:
        self.kind, self.message, self.stage, self.log_tail, self.transient = kind, message, stage, log_tail, transient
        super().__init__(f"{stage}: {kind}: {message}")


class HttpFault(DsabenchError):
    """No whole answer came over HTTP."""

    def __init__(
        self, kind: Literal["refused", "timeout", "too_large", "broken", "status", "changed"], message: str
    ) -> None:
        self.kind = kind
        """Nothing listens; a time limit; a size limit; cut off or no HTTP; of a download: another status than 200,
        another checksum.
        """
        super().__init__(message)


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: one that starts with the word (`tp`, `tp_size`), else one with a similar
    spelling.
    """
    from difflib import get_close_matches  # noqa: PLC0415  (only a message needs it)

    by_lower = {name.lower(): name for name in names}
    if longer := [name for name in by_lower if name.startswith(f"{word.lower()}_")]:
        return by_lower[min(longer, key=len)]
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.55)
    return by_lower[close[0]] if close else None


def one_line(text: str, most: int = 200) -> str:
    """Words of a server, a library or a tool as one line that cannot steer a terminal, cut to `most` characters."""
    return printable(" ".join(text.split()), most)


def printable(text: str, most: int | None = None) -> str:
    """Escape every character that could break or colour a line of a terminal, and cut the text to `most` characters."""
    start = text if most is None else text[: most + 1]
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in start)
    return shown if most is None or len(shown) <= most else f"{shown[: most - 1]}…"
