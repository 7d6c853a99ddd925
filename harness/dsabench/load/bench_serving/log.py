"""bench_serving's JSONL: one run a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsabench.errors import InputError

_ITS_OWN = ("backend", "duration", "completed")
"""Keys that each of its lines has, and no record of a journal."""


def is_bench_log(path: Path) -> bool:
    """Whether the file's first line is a run of bench_serving."""
    if not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and all(key in first for key in _ITS_OWN)


def read_bench_log(path: Path) -> list[dict[str, Any]]:
    """Every run, in order.

    Raises:
        InputError: not readable, or a line that is no run.

    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    runs = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            run = json.loads(line)  # Infinity stands there as a bare word, which stricter parsers refuse
        except ValueError as error:
            raise InputError(f"{path}:{number}: not JSON") from error
        if not isinstance(run, dict) or not all(key in run for key in _ITS_OWN):
            raise InputError(f"{path}:{number}: no run of bench_serving (lacks {', '.join(_ITS_OWN)})")
        runs.append(run)
    return runs
