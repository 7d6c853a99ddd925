"""The metrics of a record beside their means over boots, in as many tables as the terminal's width takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from dsabench.cli.broken_names import broken
from dsabench.cli.figures import show_figure
from dsabench.model.record import Measured, Scored
from dsabench.stats.intervals import BootMean

_GAP = 2
_METRIC_MIN = 16

Columns = dict[str, list[str]]
"""Head → a cell for each metric."""


def metrics_tables(outcome: Measured | Scored, repeats: Mapping[str, BootMean], width: int) -> Iterator[Table]:
    """Value and n of the record, and the means where there are several boots: side by side, or below where that is too wide."""
    names = list(outcome.metrics)
    own, means = _own(outcome), _means(names, repeats)
    if not means or _left(own | means, width) >= _METRIC_MIN:
        yield _table(names, own | means, width)
        return
    yield _table(names, own, width)
    kept = [place for place, name in enumerate(names) if name in repeats]
    below = {head: [cells[place] for place in kept] for head, cells in means.items()}
    yield _table([names[place] for place in kept], below, width)


def _own(outcome: Measured | Scored) -> Columns:
    metrics = outcome.metrics.values()
    columns = {"value": [show_figure(one.value) for one in metrics], "n": [str(one.n) for one in metrics]}
    bounds = [_interval(one.ci_low, one.ci_high) for one in metrics]
    return columns | ({"95 %": bounds} if any(bounds) else {})


def _means(names: Sequence[str], repeats: Mapping[str, BootMean]) -> Columns:
    if not repeats:
        return {}
    found = [repeats.get(name) for name in names]
    return {
        "boots": ["" if one is None else str(one.boots) for one in found],
        "mean": ["" if one is None else show_figure(one.mean) for one in found],
        "95 % of the mean": ["" if one is None or one.interval is None else _interval(*one.interval) for one in found],
    }


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{show_figure(low)} to {show_figure(high)}"


def _width(head: str, cells: Sequence[str]) -> int:
    return max(map(len, (head, *cells)))


def _left(columns: Columns, width: int) -> int:
    """Characters that the metric's name may have."""
    return width - sum(_width(head, cells) + _GAP for head, cells in columns.items())


def _table(names: Sequence[str], columns: Columns, width: int) -> Table:
    room = max(_left(columns, width), _METRIC_MIN)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    table.add_column("metric", width=min(room, _width("metric", names)))
    for head, cells in columns.items():
        table.add_column(head, justify="right", width=_width(head, cells), overflow="fold")
    for name, *cells in zip(names, *columns.values(), strict=True):
        table.add_row(escape(broken(name, room)), *cells)
    return table
