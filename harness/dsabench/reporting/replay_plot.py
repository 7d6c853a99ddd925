"""The picture of a replay: regret over the cost, one line per strategy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dsabench.reporting.svg_file import save_svg, svg_style

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#666666")


class ReplayCurve(NamedTuple):
    """The regret of one strategy over the time that it took."""

    proposer: str
    hours: Sequence[float]
    low: Sequence[float]
    """Lower quartile of the regret by then, as a share of the best setting."""
    median: Sequence[float]
    high: Sequence[float]


def draw_replays(name: str, curves: Sequence[ReplayCurve], file: Path) -> Path:
    """Write an SVG.

    Raises:
        StoreError: the file cannot be written.

    """
    from matplotlib.figure import Figure  # noqa: PLC0415  (half a second)
    from matplotlib.ticker import PercentFormatter  # noqa: PLC0415

    with svg_style({"svg.fonttype": "none"}):
        figure = Figure(figsize=(7.0, 4.0), layout="constrained")
        axes = figure.subplots()
        for one, colour in zip(curves, _COLOURS, strict=False):
            axes.fill_between(one.hours, one.low, one.high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(one.hours, one.median, color=colour, label=one.proposer)
        axes.set_xlabel("hours of boots and trials")
        axes.set_ylabel("loss against the best setting")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.set_title(f"{name}: median and quartiles", loc="left", fontsize=10)
        axes.legend(frameon=False)
        return save_svg(figure, file)
