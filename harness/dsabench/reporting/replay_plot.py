"""The picture of a replay: regret over the cost, one line per strategy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from dsabench.errors import StoreError

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#666666")


class ReplayCurve(Protocol):
    """One strategy: hours, and the quartiles of its regret by then."""

    @property
    def proposer(self) -> str:
        """Name of the strategy."""

    def curve(self) -> tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]]:
        """(hours, lower quartile, median, upper quartile) of the regret, as shares."""


def draw_replays(name: str, found: Sequence[ReplayCurve], file: Path) -> Path:
    """Write an SVG.

    Raises:
        StoreError: the file cannot be written.

    """
    from matplotlib import rc_context  # noqa: PLC0415  (half a second)
    from matplotlib.figure import Figure  # noqa: PLC0415

    style: dict[Any, Any] = {
        "svg.hashsalt": "dsabench",
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with rc_context(style):
        figure = Figure(figsize=(7.0, 4.0), layout="constrained")
        axes = figure.subplots()
        for one, colour in zip(found, _COLOURS, strict=False):
            hours, low, median, high = one.curve()
            axes.fill_between(hours, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(hours, median, color=colour, label=one.proposer)
        axes.set_xlabel("hours of boots and trials")
        axes.set_ylabel("loss against the best setting, %")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.set_title(f"{name}: median and quartiles", loc="left", fontsize=10)
        axes.legend(frameon=False)
        try:
            figure.savefig(file, format="svg", metadata={"Date": None})
        except OSError as error:
            raise StoreError(f"{file}: {error.strerror}") from error
    return file
