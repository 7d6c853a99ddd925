"""Tables of verdicts and metrics that fit the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dsabench.cli.format import broken
from dsabench.model.record import Measured, Scored
from dsabench.model.verdict import Verdict
from dsabench.reporting.headings import Heading, workload_of
from dsabench.reporting.numbers import show_figure, show_percent
from dsabench.stats.intervals import BootMean


def titled(title: str, table: Table) -> Group:
    """A table below a title of full width. rich would fold the title to the width of a narrow table."""
    return Group(Text(title, style="bold", overflow="fold"), table)


_STYLE = {
    "better": "green",
    "worse": "red",
    "differs": "magenta",
    "no difference": "cyan",
    "inconclusive": "yellow",
}
_HEADS = ("workload, metric", "effect", "interval", "MDE", "verdict")
_GAP = 2
_METRIC_MIN = 16


@dataclass(frozen=True, slots=True)
class VerdictTable:
    """One coloured row per verdict, below a heading for each comparison.

    Effect, interval and minimum detectable effect (MDE, with the sign of the effect) are relative to the base. A
    long metric name continues on the next line after a `_` or `.`.
    """

    verdicts: Sequence[Verdict]
    title: str
    heading: Heading = workload_of

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Title, head, then the headings with their rows, indented by one."""
        rows = {heading: [v for v in self.verdicts if self.heading(v) == heading] for heading in self._headings()}
        widths = self._widths(options.max_width - 1)
        yield Text(self.title, style="bold")
        yield ""
        yield Padding(_heads(widths), (0, 0, 0, 1), expand=False)
        for heading, verdicts in rows.items():
            yield Padding(Text(heading, style="bold", overflow="fold"), (0, 0, 0, 1), expand=False)
            yield Padding(_rows(verdicts, widths), (0, 0, 0, 1), expand=False)
        yield ""

    def _headings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self.heading, self.verdicts)))

    def _widths(self, room: int) -> tuple[int, ...]:
        """Column widths: figures get what they need, the metric gets the rest."""
        columns = zip(_HEADS, *map(_cells, self.verdicts), strict=True)
        metric, *figures = (max(map(len, column)) for column in columns)
        figures[-1] = max(figures[-1], len("no difference"))
        left = room - sum(figures) - _GAP * len(figures)
        return (max(min(metric, left), _METRIC_MIN), *figures)


def _heads(widths: Sequence[int]) -> Table:
    return _columns(widths, show_header=True)


def _rows(verdicts: Sequence[Verdict], widths: Sequence[int]) -> Table:
    table = _columns(widths, show_header=False)
    for verdict in verdicts:
        metric, *figures = _cells(verdict)
        table.add_row(
            Text(broken(metric.strip(), widths[0], indent="  ")), *map(Text, figures), style=_STYLE[verdict.verdict]
        )
    return table


def _columns(widths: Sequence[int], *, show_header: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, show_header=show_header)
    for head, width in zip(_HEADS, widths, strict=True):
        justify = "left" if head in (_HEADS[0], _HEADS[-1]) else "right"
        table.add_column(head, width=width, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


def _cells(verdict: Verdict) -> tuple[str, ...]:
    interval = "–" if verdict.ci_low is None else f"{show_percent(verdict.ci_low)} … {show_percent(verdict.ci_high)}"
    return (
        f"  {verdict.metric}",
        show_percent(verdict.effect),
        interval,
        show_percent(verdict.detectable_beside_effect),
        verdict.verdict,
    )


Columns = dict[str, list[str]]
"""Head → a cell per metric."""


def metrics_tables(outcome: Measured | Scored, repeats: Mapping[str, BootMean], width: int) -> Iterator[Table]:
    """Value and n of the record, and the means of several boots: side by side, or below each other if that is too
    wide.
    """
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
    """Width left for the name of the metric."""
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
