"""Plain data, the way to a value inside it, and text that is safe to print."""

from __future__ import annotations

from typing import NamedTuple

Plain = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None
"""What JSON knows."""

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top of the file."""


class Place(NamedTuple):
    """Where a key or a list item stands; both count from 1."""

    line: int
    column: int


def key_text(path: KeyPath) -> str:
    """`workloads[0].input_len`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")
