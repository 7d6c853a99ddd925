"""Verdicts as a table of a terminal, whatever its width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dsabench.cli.broken_names import broken
from dsabench.cli.figures import show_percent
from dsabench.model.verdict import Verdict
from dsabench.reporting.headings import Heading, workload_of

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
    """One row a verdict, coloured by it, under a line for each thing that is compared.

    Effect, interval and minimum detectable effect (MDE, on the effect's side of 0) are relative to the base. A heading takes the whole width, and a
    metric's name that is too long goes on in the next line behind a `_` or `.`.
    """

    verdicts: Sequence[Verdict]
    title: str
    heading: Heading = workload_of

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Title, heads, then the headings with their rows, all indented by one."""
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
        """Of the columns: those of figures get what they need, the metric the rest."""
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
