"""Which knob matters: the mean of the settings with each value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dsabench.model.metrics import METRICS
from dsabench.model.value import KnobValue
from dsabench.reporting.site.canvas import LINE, SERIES, TEXT, draw
from dsabench.reporting.site.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXES_MAX = 10
_WORD_MAX = 22

Observed = Sequence[tuple[Mapping[str, KnobValue], float]]
"""Settings with the objective's value."""


def draw_effects(study: Study) -> str | None:
    """A row a value of each axis: how far its settings lie from the mean of all. None where nothing varies."""
    scored = [(setting.spec.knobs, study.score(setting)) for setting in study.settings]
    effects = main_effects([(knobs, score.value) for knobs, score in scored if score.value is not None])
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


def varying(observed: Observed) -> dict[str, tuple[KnobValue, ...]]:
    """Axis → its values, of those that took more than one."""
    names = list(dict.fromkeys(name for knobs, _ in observed for name in knobs))
    values = {name: dict.fromkeys(knobs[name] for knobs, _ in observed if name in knobs) for name in names}
    return {name: tuple(of_axis) for name, of_axis in values.items() if len(of_axis) > 1}


def main_effects(observed: Observed) -> dict[str, dict[KnobValue, tuple[float, int]]]:
    """Axis → value → (relative difference of its settings' geometric mean from all settings', how many they are)."""
    logs = [(knobs, math.log(value)) for knobs, value in observed if value > 0]
    if not logs:
        return {}
    overall = math.fsum(log for _, log in logs) / len(logs)
    found: dict[str, dict[KnobValue, tuple[float, int]]] = {}
    for axis, values in varying(observed).items():
        for value in values:
            having = [log for knobs, log in logs if axis in knobs and knobs[axis] == value]
            if having:
                effect = math.expm1(math.fsum(having) / len(having) - overall)
                found.setdefault(axis, {})[value] = (effect, len(having))
    return found


def _span(of_axis: Mapping[KnobValue, tuple[float, int]]) -> float:
    effects = [effect for effect, _ in of_axis.values()]
    return max(effects) - min(effects)


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= _WORD_MAX else text[: _WORD_MAX - 1] + "…"
