"""`dsabench compare` where a side is a published run or bench_serving's JSONL."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dsabench.cli.tables import titled
from dsabench.config.load import load_published, published_file
from dsabench.errors import InputError, printable
from dsabench.load.bench_serving.log import is_bench_log, read_bench_log
from dsabench.model.record import Record
from dsabench.reporting.numbers import show_figure, show_percent
from dsabench.reporting.published_comparison import NO_VERDICT, Difference, SideBySide, hold_beside
from dsabench.reporting.serving_run import ServingRun, logged_run, published_run, recorded_run

Records = Callable[[str], tuple[Record, ...]]
"""The records that a name on the command line means."""


def is_single_run(name: str) -> bool:
    """Whether a name means one run without boots: a published one, or a line of bench_serving's JSONL."""
    return published_file(name) is not None or is_bench_log(Path(name.rpartition("#")[0] or name))


def compare_single_runs(
    names: tuple[str, str], records: Records, metrics: list[str], *, gate: bool, as_json: bool
) -> int:
    """Print both runs side by side.

    Raises:
        InputError: a gate was asked for, which needs verdicts; or a side is no run.

    """
    if gate:
        raise InputError("--gate needs verdicts, and a single run gives none: compare two journals of several boots")
    base, candidate = (_run(name, records) for name in names)
    beside = hold_beside(base, candidate, metrics)
    if as_json:
        print(json.dumps(beside.as_json()))
    else:
        _print(Console(), beside)
    return 0


def _run(name: str, records: Records) -> ServingRun:
    if (file := published_file(name)) is not None:
        return published_run(load_published(file))
    place, _, number = name.rpartition("#")
    path = Path(place or name)
    if not is_bench_log(path):
        return recorded_run(name, records(name))
    runs = read_bench_log(path)
    if not place and len(runs) > 1:
        raise InputError(f"{name}: {len(runs)} runs; name one as {name}#1 to {name}#{len(runs)}")
    if place and not (number.isdigit() and 1 <= int(number) <= len(runs)):
        raise InputError(f"{name}: {path} has the runs 1 to {len(runs)}")
    return logged_run(name, runs[int(number) - 1 if place else 0])


def _print(console: Console, beside: SideBySide) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("figure")
    for column in (*_heads(beside), "difference"):
        table.add_column(_shown(column), justify="right", overflow="fold")
    for pair in beside.figures:
        values = ("–" if value is None else show_figure(value) for value in (pair.base, pair.candidate))
        table.add_row(_shown(pair.name), *values, show_percent(pair.change))
    console.print(titled(printable(_title(beside)), table))
    _print_settings(console, "settings that differ", beside, beside.differing)
    _print_settings(console, "told by one side only", beside, beside.untold)
    console.print(f"\n{NO_VERDICT}", markup=False, highlight=False)
    for note in dict.fromkeys((*beside.base.notes, *beside.candidate.notes)):
        console.print(f"note: {printable(note)}", markup=False, highlight=False)


def _print_settings(console: Console, title: str, beside: SideBySide, found: tuple[Difference, ...]) -> None:
    if not found:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in (title, *_heads(beside)):
        table.add_column(_shown(column), overflow="fold")
    for one in found:
        cells = ("not told" if value is None else str(value) for value in (one.base, one.candidate))
        table.add_row(_shown(one.setting), *map(_shown, cells))
    console.print()
    console.print(table)


def _title(beside: SideBySide) -> str:
    return f"{beside.candidate.name} beside {beside.base.name}"


def _heads(beside: SideBySide) -> tuple[str, str]:
    return f"base ({_kind(beside.base)})", f"candidate ({_kind(beside.candidate)})"


def _kind(run: ServingRun) -> str:
    kind = "printed" if run.published else "measured"
    return kind if run.boots == 1 else f"{kind}, mean of {run.boots} boots"


def _shown(text: str) -> str:
    """A file's words neither style nor steer the terminal."""
    return escape(printable(text))
