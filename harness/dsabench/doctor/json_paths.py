"""What stands where in JSON that somebody else wrote."""

from __future__ import annotations

from typing import Any


def dig(value: Any, *path: str | int) -> Any:
    """What stands at a path of keys and positions; None where anything on it is missing or of another kind."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: Any, *path: str | int) -> str:
    """The text at a path; empty where there is none."""
    found = dig(value, *path)
    return found if isinstance(found, str) else ""


def number_at(value: Any, *path: str | int) -> float | None:
    """The number at a path."""
    found = dig(value, *path)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None
