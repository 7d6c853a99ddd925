"""Throughput per accelerator against latency: what a setting costs the user, and the front of those nobody beats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dsabench.model.metrics import METRICS
from dsabench.model.runtime import SIMULATED
from dsabench.reporting.numbers import show_figure
from dsabench.reporting.site.canvas import LINE, QUIET, SERIES, TEXT, draw, linked
from dsabench.reporting.site.entry import Entry
from dsabench.reporting.site.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Mark = TypeVar("Mark")

_LATENCIES = ("ttft_ms.p99", "ttft_ms.p90", "ttft_ms.p50")
"""The first percentile that the records have is drawn: how many requests there were decides it."""
_LINKED = 60
"""Marks with a link of their own; the others of a large study are drawn as pixels."""


@dataclass(frozen=True, slots=True)
class Point:
    """One setting under one workload."""

    x: float
    y: float
    label: str
    entry: Entry

    @property
    def is_simulated(self) -> bool:
        """Whether its speed hangs on something that was pinned."""
        return SIMULATED in self.entry.record.labels


def front(marks: Sequence[Mark], place: Callable[[Mark], tuple[float, float]]) -> list[Mark]:
    """Those that no other beats in both directions, by a rising first value: low first and high second ones are better."""
    kept: list[Mark] = []
    best = -math.inf
    for mark in sorted(marks, key=lambda one: (place(one)[0], -place(one)[1])):
        if (second := place(mark)[1]) > best:
            kept.append(mark)
            best = second
    return kept


def draw_tradeoff(study: Study, workload: str, root: str = "../") -> str | None:
    """The picture of one workload on a page below `root`; None where fewer than two settings have numbers."""
    for metric in _LATENCIES:
        points = _points(study, workload, metric)
        if len(points) >= 2:
            return _picture(study, workload, metric, points, root)
    return None


def _points(study: Study, workload: str, metric: str) -> list[Point]:
    points = []
    for setting in study.settings:
        y = setting.figure(workload, "total_throughput_tok_s")
        x = setting.figure(workload, metric)
        if x is not None and y is not None:
            points.append(Point(x.value, y.value / study.gpus[setting.spec.id], setting.label, y.entries[-1]))
    return points


def _picture(study: Study, workload: str, metric: str, points: Sequence[Point], root: str) -> str:
    best = front(points, lambda one: (one.x, one.y))
    marked = {point.label: point for point in points}
    default = marked.get("default")
    chosen = None if study.best is None else marked.get(study.best.label)
    urls = {point.entry.page: point for point in points}

    def plot(axes: Axes) -> None:
        others = [point for point in points if point not in best]
        step = max(1, -(-len(others) // _LINKED))
        shown, rest = others[::step], [point for i, point in enumerate(others) if i % step]
        if rest:
            axes.scatter([p.x for p in rest], [p.y for p in rest], s=6, color=QUIET, alpha=0.35, lw=0, rasterized=True)
        dots = axes.scatter([p.x for p in shown], [p.y for p in shown], s=26, facecolors=QUIET, alpha=0.7, lw=0)
        dots.set_urls([f"{root}{p.entry.page}" for p in shown])
        axes.step([p.x for p in best], [p.y for p in best], where="post", color=SERIES[0], lw=1.2, ls=":")
        tops = axes.scatter(
            [p.x for p in best],
            [p.y for p in best],
            s=44,
            facecolors=["none" if p.is_simulated else SERIES[0] for p in best],
            edgecolors=SERIES[0],
            lw=1.4,
            zorder=3,
        )
        tops.set_urls([f"{root}{p.entry.page}" for p in best])
        for point, word, colour in ((default, "default", TEXT), (chosen, "best", SERIES[1])):
            if point is not None:
                axes.scatter([point.x], [point.y], s=110, facecolors="none", edgecolors=colour, lw=1.6, zorder=4)
                axes.annotate(
                    word, (point.x, point.y), xytext=(7, 5), textcoords="offset points", fontsize=8.5, color=colour
                )
        axes.set_xlabel(f"{metric.replace('_ms', '')} in ms")
        axes.set_ylabel("tok/s per GPU" if study.environment.hardware.gpus else "tok/s")
        axes.set_title("left and up is better")
        axes.margins(0.14)
        axes.grid(color=LINE)

    words = f"Throughput against {metric} for {len(points)} settings under {workload}; {len(best)} on the front."
    svg = draw(f"{study.slug}-{workload}-{metric}", words, plot)
    titles = {
        f"{root}{page}": f"{point.label}{' (simulated)' if point.is_simulated else ''}: {show_figure(point.y)} tok/s, {show_figure(point.x)} ms"
        for page, point in urls.items()
    }
    return linked(svg, titles)


def unit_of(metric: str) -> str:
    """`ms`, `tok/s`, …; empty for a metric without an entry in the vocabulary."""
    info = METRICS.get(metric)
    return "" if info is None else info.unit
