"""Durations, read and shown, and long names in narrow columns."""

from __future__ import annotations

import re

from dsabench.errors import InputError

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration_s(text: str) -> float:
    """Seconds of `90`, `90s`, `30m`, `1h30m`, `1.5h`.

    Raises:
        InputError: anything else, or a duration of 0.

    """
    compact = text.replace(" ", "").lower()
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        compact += "s"
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", compact):
        raise InputError(f"{text!r} is not a duration: use 90s, 30m, 1h30m or 2d")
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", compact)
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if seconds <= 0:
        raise InputError(f"{text!r} must be more than 0")
    return float(seconds)


def parse_latency_ms(text: str) -> float:
    """Milliseconds of `50ms`, `3s`, `1.5s`. The unit must be there: a bare number could be either.

    Raises:
        InputError: anything else, or a latency of 0.

    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", text.strip().lower())
    if found is None or float(found[1]) <= 0:
        raise InputError(f"{text!r} is not a latency: use 50ms or 3s")
    return float(found[1]) * (1000.0 if found[2] == "s" else 1.0)


def broken(name: str, width: int, indent: str = "") -> str:
    """Break a name into lines of at most `width`, after a `_` or `.` if its parts are short enough.

    All lines start with `indent`; all but the first with two more spaces.
    """
    lines = [indent]
    for piece in re.findall(r"[^_.]*[_.]?", name):
        if len(lines[-1]) + len(piece) > width and lines[-1].strip():
            lines.append(f"{indent}  ")
        lines[-1] += piece
    return "\n".join(lines)
