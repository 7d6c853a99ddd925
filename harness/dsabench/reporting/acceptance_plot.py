"""The picture of an acceptance: scores with their intervals, and speeds as ratios to the published ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dsabench.reporting.svg_file import save_svg, svg_style


class ScoreRow(NamedTuple):
    """A score and the published one."""

    name: str
    ours: float
    low: float | None
    high: float | None
    theirs: float


class LoadRow(NamedTuple):
    """A figure of a load, over that of the published run."""

    load: str
    figure: str
    ratio: float


def draw_acceptance(scores: Sequence[ScoreRow], loads: Sequence[LoadRow], file: Path) -> Path | None:
    """One SVG; None where nothing was published to compare with.

    Raises:
        StoreError: the file cannot be written.

    """
    parts: list[tuple[Callable[[Any], None], int]] = []
    if scores:
        parts.append((partial(_scores, rows=scores), len(scores)))
    if loads:
        parts.append((partial(_loads, rows=loads), len(loads)))
    if not parts:
        return None
    from matplotlib.figure import Figure  # noqa: PLC0415  (half a second)

    heights = [rows + 1.2 for _, rows in parts]
    with svg_style({"svg.fonttype": "none", "axes.spines.left": False, "ytick.left": False}):
        figure = Figure(figsize=(7.0, 0.42 * sum(heights) + 0.8), layout="constrained")
        panels = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)
        for (draw, _), (axes,) in zip(parts, panels, strict=True):
            draw(axes)
            axes.invert_yaxis()
        return save_svg(figure, file)


def _scores(axes: Any, rows: Sequence[ScoreRow]) -> None:
    for place, row in enumerate(rows):
        if row.low is not None and row.high is not None:
            axes.plot((row.low, row.high), (place, place), color="#1f6fb2", linewidth=2.0, solid_capstyle="butt")
    places = range(len(rows))
    axes.plot([row.ours for row in rows], places, "o", color="#1f6fb2", label="this machine, 95 % interval")
    axes.plot(
        [row.theirs for row in rows], places, "|", color="#c03a2b", markersize=16, markeredgewidth=2, label="published"
    )
    axes.set_yticks(places, [row.name for row in rows])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xlabel("score")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=8)


def _loads(axes: Any, rows: Sequence[LoadRow]) -> None:
    places = range(len(rows))
    axes.axvline(1.0, color="#c03a2b", linewidth=1.5)
    axes.plot([row.ratio for row in rows], places, "o", color="#1f6fb2")
    axes.set_yticks(places, [f"{row.load}: {row.figure}" for row in rows])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xscale("log", base=2)
    low, high = min(0.5, *(row.ratio for row in rows)), max(2.0, *(row.ratio for row in rows))
    ticks = [tick for tick in (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0) if low <= tick <= high]
    axes.set_xlim(low / 1.1, high * 1.1)
    axes.set_xticks(ticks, [f"{tick:g} ×" for tick in ticks])
    axes.set_xlabel("this machine over the published run (one run each, no verdict)")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
