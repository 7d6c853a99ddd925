"""Rows of JSONL and CSV files, and complaints that name the line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dsabench.errors import InputError


class Row(NamedTuple):
    """One row with its place."""

    place: str
    """`FILE:LINE`."""
    values: dict[str, str]

    def text(self, column: str) -> str:
        """A column's text.

        Raises:
            InputError: there is no such column, or nothing in it.

        """
        if column not in self.values:
            raise InputError(f"{self.place}: no column {column!r} (there are: {', '.join(self.values) or 'none'})")
        if not self.values[column].strip():
            raise InputError(f"{self.place}: {column} is empty")
        return self.values[column]


def read_text(path: Path) -> str:
    """The file as UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def read_jsonl(path: Path) -> tuple[Row, ...]:
    """Rows of a JSONL file, values as text; empty lines and lines that begin with # are left out, as sglang does."""
    text = read_text(path)
    lines = text.split("\n")
    rows = tuple(_json_rows(path, lines))
    if not rows:
        raise InputError(f"{path}: holds no question")
    return rows


def _json_rows(path: Path, lines: Sequence[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        place = f"{path}:{number}"
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            cut = "the file ends in the middle of a question (truncated?)" if number == len(lines) else "not JSON"
            raise InputError(f"{place}: {cut}") from error
        if not isinstance(data, dict):
            raise InputError(f"{place}: not a JSON object")
        values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}
        yield Row(place, values)


def read_csv(path: Path) -> tuple[Row, ...]:
    """Rows of a CSV file with a header."""
    place = str(path)
    header, *rows = [*read_cells(read_text(path), place)] or [[]]
    found = []
    for number, cells in enumerate(rows, start=2):
        if len(cells) != len(header):
            raise InputError(f"{place}: row {number} has {len(cells)} of {len(header)} columns (truncated?)")
        found.append(Row(f"{place}: row {number}", dict(zip(header, cells, strict=True))))
    if not found:
        raise InputError(f"{path}: holds no question")
    return tuple(found)


def read_cells(text: str, place: str) -> Iterator[list[str]]:
    """Cells of a CSV text; empty lines are left out."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        yield from (cells for cells in reader if cells)
    except csv.Error as error:
        raise InputError(f"{place}:{reader.line_num}: not CSV (truncated?): {error}") from error
