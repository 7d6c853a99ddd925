"""Long names of metrics in narrow columns."""

from __future__ import annotations

import re


def broken(name: str, width: int, indent: str = "") -> str:
    """The name in lines of at most `width`, broken behind a `_` or `.` where its parts are that short.

    All lines begin with `indent`, those from the second on with two spaces more.
    """
    lines = [indent]
    for piece in re.findall(r"[^_.]*[_.]?", name):
        if len(lines[-1]) + len(piece) > width and lines[-1].strip():
            lines.append(f"{indent}  ")
        lines[-1] += piece
    return "\n".join(lines)
