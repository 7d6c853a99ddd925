"""What one check came to."""

from __future__ import annotations

from typing import Literal

from dsabench.errors import printable
from dsabench.model.value import Value

Verdict = Literal["ok", "warning", "problem"]


class Finding(Value):
    """One line about one thing. A problem keeps the runtime from working; a warning may."""

    check: str
    """What was looked at: `gpu`, `driver`, `open files`, `tool calls`, …"""
    verdict: Verdict
    line: str
    fix: str | None = None
    """A command, or the words to add to one; None where nothing is wrong or no command helps."""


def ok(check: str, line: str) -> Finding:
    """Nothing to do."""
    return Finding(check=check, verdict="ok", line=one_line(line))


def warning(check: str, line: str, fix: str | None = None) -> Finding:
    """Works, perhaps not for long or not as fast."""
    return Finding(check=check, verdict="warning", line=one_line(line), fix=fix)


def problem(check: str, line: str, fix: str | None = None) -> Finding:
    """Does not work."""
    return Finding(check=check, verdict="problem", line=one_line(line), fix=fix)


def one_line(text: str, most: int = 300) -> str:
    """What a server or tool said as one line of at most so many characters, which cannot steer a terminal."""
    return printable(" ".join(text.split()), most)
