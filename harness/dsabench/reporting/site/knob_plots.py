"""Which knob matters: means per value, the share of the variance that each explains, and parallel coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dsabench.model.metrics import METRICS
from dsabench.model.value import KnobValue
from dsabench.reporting.knob_effects import Observed, main_effects, variance_shares, varying
from dsabench.reporting.site.canvas import LINE, QUIET, SERIES, TEXT, draw
from dsabench.reporting.site.figures import show
from dsabench.reporting.site.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Column = tuple[str, Sequence[KnobValue]]
"""A knob and its values."""

_AXES_MAX = 10
_LINES_MAX = 400
_WORD_MAX = 22
_DRAWN_MAX = 150
"""Lines; more of them are pixels."""


def observed(study: Study) -> list[tuple[Mapping[str, KnobValue], float]]:
    """Every setting with a score, best first."""
    scored = [(setting.spec.knobs, study.score(setting)) for setting in study.settings]
    return [(knobs, score) for knobs, score in scored if score is not None]


def draw_effects(study: Study, seen: Observed) -> str | None:
    """A row a value of each axis: how far its settings lie from the mean of all. None where nothing varies."""
    effects = main_effects(seen)
    axes_shown = sorted(effects, key=lambda name: -_span(effects[name]))[:_AXES_MAX]
    rows: list[tuple[str, float, int, bool]] = []
    for name in axes_shown:
        values = sorted(effects[name].items(), key=lambda item: -item[1][0])
        rows += [(f"{name}={_cut(value)}", effect, n, i == 0) for i, (value, (effect, n)) in enumerate(values)]
    if not rows:
        return None
    rows.reverse()

    def plot(axes: Axes) -> None:
        for row, (_, effect, _n, _) in enumerate(rows):
            axes.plot([0, 100 * effect], [row, row], color=SERIES[0], lw=2.2, solid_capstyle="round")
        axes.scatter([100 * effect for _, effect, _, _ in rows], range(len(rows)), s=26, color=SERIES[0], zorder=3)
        for row, (_, _, _, first) in enumerate(rows):
            if first and row < len(rows) - 1:
                axes.axhline(row + 0.5, color=LINE, lw=0.8)
        axes.axvline(0, color=TEXT, lw=0.8)
        axes.set_yticks(range(len(rows)), [f"{label}  ({n})" for label, _, n, _ in rows])
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"% from the mean of all settings, {METRICS[study.metric].better} is better")
        axes.margins(x=0.12)

    words = (
        f"Mean {study.metric} of the settings with each value, in percent from the mean of all; settings in brackets."
    )
    return draw(f"{study.slug}-effects", words, plot, height_in=0.9 + 0.24 * len(rows), width_in=7.2)


def draw_importance(study: Study, seen: Observed) -> str | None:
    """Each knob's share of the variance; None where no knob's can be told."""
    shares = variance_shares(seen)
    if not shares:
        return None
    ranked = sorted(shares.items(), key=lambda item: item[1])[-_AXES_MAX:]

    def plot(axes: Axes) -> None:
        axes.barh([name for name, _ in ranked], [100 * share for _, share in ranked], height=0.6, color=SERIES[0])
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("% of the variance")

    return draw(f"{study.slug}-importance", f"Importance of each knob for {study.metric}.", plot,
                height_in=0.9 + 0.3 * len(ranked))  # fmt: skip


def draw_parallel(study: Study, seen: Observed) -> str | None:
    """A line a setting through its values, the last column the objective. None where fewer than two axes vary."""
    columns = list(varying(seen).items())[:_AXES_MAX]
    if len(columns) < 2:
        return None
    step = max(1, -(-len(seen) // _LINES_MAX))
    shown = [*seen[:20], *seen[20::step]]  # best first, so the best are always there
    scores = [score for _, score in seen]
    low, high = math.log(min(scores)), math.log(max(scores))

    from matplotlib.collections import LineCollection  # noqa: PLC0415

    def height(score: float) -> float:
        return 0.5 if high == low else (math.log(score) - low) / (high - low)

    def plot(axes: Axes) -> None:
        places = {name: _places(values) for name, values in columns}
        best = max(scores) if METRICS[study.metric].direction == "maximize" else min(scores)

        def path(knobs: Mapping[str, KnobValue], score: float) -> list[tuple[float, float]]:
            ys = [places[name].get(str(knobs[name]), 0.0) if name in knobs else -0.12 for name, _ in columns]
            return list(enumerate([*ys, height(score)]))

        others = [(knobs, score) for knobs, score in reversed(shown) if score != best]
        alphas = [0.18 + 0.5 * height(score) ** 2 for _, score in others]
        lines = LineCollection([path(*one) for one in others], colors=SERIES[0], linewidths=1.1, alpha=alphas)
        lines.set_rasterized(len(others) > _DRAWN_MAX)
        axes.add_collection(lines)
        for knobs, score in shown:
            if score == best:
                axes.plot(*zip(*path(knobs, score), strict=True), color=SERIES[1], lw=2.4, zorder=3)
        _label_columns(axes, columns, places)
        _label_scores(axes, study, columns, {score: height(score) for score in (min(scores), max(scores))})

    words = f"Parallel coordinates of {len(shown)} settings over {len(columns)} knobs; the best is highlighted."
    return draw(f"{study.slug}-parallel", words, plot, height_in=3.6, width_in=max(7.2, 1.25 * (len(columns) + 1)))


def _label_columns(axes: Axes, columns: Sequence[Column], places: Mapping[str, Mapping[str, float]]) -> None:
    for column, (name, _) in enumerate(columns):
        axes.axvline(column, color=QUIET, lw=0.8)
        for text, y in _spaced(places[name]):
            axes.text(column, y + 0.025, text, fontsize=7.5, color=TEXT, ha="center", va="bottom")


def _label_scores(axes: Axes, study: Study, columns: Sequence[Column], heights: Mapping[float, float]) -> None:
    axes.axvline(len(columns), color=QUIET, lw=0.8)
    for score, y in heights.items():
        axes.text(len(columns) + 0.05, y, show(score), fontsize=7.5, color=TEXT, va="center")
    axes.set_xticks(range(len(columns) + 1), [*(_wrapped(name) for name, _ in columns), _wrapped(study.metric)])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set_xlim(-0.35, len(columns) + 0.55)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _places(values: Sequence[KnobValue]) -> dict[str, float]:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    ordered = sorted(numbers) if len(numbers) == len(values) else sorted(values, key=str)
    return {str(value): index / max(len(ordered) - 1, 1) for index, value in enumerate(ordered)}


def _spaced(places: Mapping[str, float]) -> list[tuple[str, float]]:
    """At most a dozen words a column."""
    items = list(places.items())
    step = max(1, -(-len(items) // 12))
    return [(_cut(text), y) for text, y in items[::step]]


def _span(of_axis: Mapping[KnobValue, tuple[float, int]]) -> float:
    effects = [effect for effect, _ in of_axis.values()]
    return max(effects) - min(effects)


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= _WORD_MAX else text[: _WORD_MAX - 1] + "…"


def _wrapped(name: str) -> str:
    words, lines = name.split("_"), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 11 and lines[-1]:
            lines.append("")
        lines[-1] += ("_" if lines[-1] or len(lines) > 1 else "") + word
    return "\n".join(lines)
