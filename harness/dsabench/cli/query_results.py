"""`dsabench results query` and `dsabench results export`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dsabench.errors import printable
from dsabench.reporting.numbers import show_figure
from dsabench.results.frames import Results, TableName, load_results
from dsabench.results.query import QueryResult, as_objects, csv_cell, export, query

Form = Literal["table", "csv", "json"]
Row = tuple[object, ...]
_CELL_MIN = 6
"""Least width of a readable column."""
_SHOWN = 1000
"""Rows of a table on a terminal at most. Other formats print all."""


def run_query(places: list[Path], sql: str, form: Form) -> None:
    """Print the answer to a statement.

    Raises:
        InputError: the statement is wrong, or there is no journal.

    """
    answer = query(_load(places), sql, None if form != "table" else _SHOWN + 1)
    if form == "json":
        for row in as_objects(answer):
            print(json.dumps(row, default=_plain, ensure_ascii=False))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(tuple("" if cell is None else csv_cell(cell) for cell in row) for row in answer.rows)
    else:
        _print_table(answer)


def run_export(places: list[Path], table: TableName, output: Path) -> None:
    """Write a table and print its size.

    Raises:
        InputError: there is no journal, or the file has another ending.
        StoreError: the file cannot be written.

    """
    rows = export(_load(places), table, output)
    print(f"{output}: {rows:,} rows of {table}")


def _load(places: Sequence[Path]) -> Results:
    """Load the records; report damaged lines."""
    results = load_results(*places)
    for problem in results.problems:
        print(f"warning: {problem}", file=sys.stderr)
    return results


def _print_table(answer: QueryResult) -> None:
    console = Console()
    rows = answer.rows[:_SHOWN]
    if len(answer.columns) * (_CELL_MIN + 2) > console.width:
        _print_one_by_one(console, answer.columns, rows)
    else:
        _print_side_by_side(console, answer.columns, rows)
    if len(answer.rows) > _SHOWN:
        console.print(f"the first {_SHOWN:,} rows; --format csv prints all", markup=False, highlight=False)


def _print_one_by_one(console: Console, columns: Row, rows: Sequence[Row]) -> None:
    """Print a line per column of each row, cut to the width of the terminal. So many columns do not fit side by side."""
    width = max(map(len, map(str, columns)))
    for number, row in enumerate(rows, start=1):
        console.print(f"row {number}", style="bold", highlight=False)
        for column, cell in zip(columns, row, strict=True):
            line = " ".join(f"  {column:<{width}}  {_cell(cell)}".rstrip().split("\n"))
            console.print(Text(line), no_wrap=True, overflow="ellipsis", crop=True)
    console.print("--format json or csv prints every value whole", style="dim")


def _print_side_by_side(console: Console, columns: Row, rows: Sequence[Row]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        numeric = any(isinstance(row[index], int | float) for row in rows)
        table.add_column(escape(str(column)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(cell)) for cell in row))
    console.print(table)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return show_figure(value)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return printable(str(value))


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
