"""The picture of one sweep: every setting measured, and best against default with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import StudyConfig
from dsabench.model.metrics import METRICS
from dsabench.model.record import Phase
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study_result import ScoredSetting, StudyResult
from dsabench.model.verdict import Verdict
from dsabench.reporting.svg_file import save_svg, svg_style
from dsabench.results.scores import boot_values, levels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by colour-blind readers and in grey print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_VERDICT_COLOURS = {
    "better": "#009E73",
    "worse": "#D55E00",
    "differs": "#CC79A7",
    "no difference": "#0072B2",
    "inconclusive": "#888888",
}

_BETWEEN = 0.08
"""Space between the left axes and the labels of the right ones, as a share of the axes' width."""
_LEAST = -1.0
"""A decrease ends at -100 %."""


def draw_sweep(config: StudyConfig, result: StudyResult, folder: Path) -> Path | None:
    """Write `sweep.svg` into the folder; returns its path, None when nothing was measured.

    Raises:
        StoreError: disk full or read-only.

    """
    shown = [candidate for candidate in result.candidates if candidate.score.value is not None]
    if not shown:
        return None
    with svg_style():
        return save_svg(sweep_figure(config, result, shown), folder / "sweep.svg")


def sweep_figure(config: StudyConfig, result: StudyResult, shown: list[ScoredSetting]) -> Figure:
    """The settings on the left; where something was confirmed, the verdicts on the right."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    rows = [_in_lines(candidate.label) for candidate in shown]
    forest = _forest(result)
    sides = (rows, [row.label for row in forest], [""] * 3)
    height = 2.2 + max(len(side) * max(map(_row_inches, side), default=0.0) for side in sides)
    figure = Figure(figsize=((13 if forest else 8) + 4 * bool(result.rivals), height), layout="constrained")
    panels = figure.subplots(1, 2 if forest else 1, squeeze=False, gridspec_kw={"wspace": _BETWEEN})[0]
    _draw_settings(panels[0], config, result, shown)
    if forest:
        _draw_verdicts(panels[1], result, forest)
    caveat = runtime_kinds()[config.runtime.kind].caveat
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=6, frameon=False)
    of_round = f", round {result.round} alone" if result.round else ""
    figure.suptitle(config.name + of_round + (f" — {caveat}" if caveat else ""), fontsize=10)
    return figure


def _draw_settings(axes: Axes, config: StudyConfig, result: StudyResult, shown: list[ScoredSetting]) -> None:
    """One row a setting, best on top; one colour a workload; hollow marks are outside a constraint."""
    ordered = sorted(shown, key=lambda candidate: config.objective.sign * (candidate.score.value or 0.0))
    metric = config.objective.metric
    for index, workload in enumerate(config.workloads):
        colour = _COLOURS[index % len(_COLOURS)]
        for row, candidate in enumerate(ordered):
            search = _values(result, candidate.spec, workload.name, metric, "search")
            fill = colour if candidate.score.is_feasible else "none"
            axes.scatter(search, [row] * len(search), s=36, facecolors=fill, edgecolors=colour, zorder=3)
            confirm = _values(result, candidate.spec, workload.name, metric, "confirm")
            axes.scatter(confirm, [row - 0.22] * len(confirm), s=26, marker="|", color=colour, zorder=3)
        axes.scatter([], [], color=colour, label=workload.name)
    axes.scatter([], [], marker="|", color="black", label="confirmation boots")
    axes.set_yticks(range(len(ordered)), [_in_lines(candidate.label) for candidate in ordered])
    axes.set_xlabel(f"{metric} ({METRICS[metric].better} is better)")
    axes.set_xlim(left=0, right=1.05 * axes.dataLim.x1)
    axes.grid(axis="x", alpha=0.3)
    axes.set_title("every setting, one boot each; hollow: outside a constraint", fontsize=9, loc="left")


def _in_lines(label: str) -> str:
    """Two settings a line."""
    words = label.split(" ")
    return "\n".join(" ".join(words[i : i + 2]) for i in range(0, len(words), 2))


class _Row(NamedTuple):
    """A line of the forest plot."""

    label: str
    verdict: Verdict


def _forest(result: StudyResult) -> list[_Row]:
    """The verdicts against the default, then those against each rival, each with what it says."""
    against = [("the default", result.verdicts), *((_in_lines(one.label), one.verdicts) for one in result.rivals)]
    return [
        _Row(f"{verdict.workload}{f', against {base}' * bool(result.rivals)}\n{_said(verdict)}", verdict)
        for base, verdicts in against
        for verdict in verdicts
    ]


def _said(verdict: Verdict) -> str:
    return f"{verdict.metric}: {verdict.verdict}, {verdict.n_candidate} and {verdict.n_base} boots"


def _row_inches(label: str) -> float:
    """Height of a row: its text, and some air."""
    return max(0.5, 0.16 * (label.count("\n") + 1) + 0.1)


def _draw_verdicts(axes: Axes, result: StudyResult, forest: list[_Row]) -> None:
    """A forest plot: effect and interval per workload and metric; in the grey band a difference may go unseen."""
    rows = list(reversed(forest))
    verdicts = [row.verdict for row in rows]
    for row, verdict in enumerate(verdicts):
        if verdict.effect is None:
            continue
        colour = _VERDICT_COLOURS[verdict.verdict]
        if verdict.detectable is not None:
            low, high = (100 * edge for edge in verdict.detectable)
            axes.barh(row, high - low, left=low, height=0.7, color="#eeeeee", zorder=1)
        if verdict.ci_low is not None and verdict.ci_high is not None:
            axes.plot([100 * verdict.ci_low, 100 * verdict.ci_high], [row, row], color=colour, lw=2, zorder=2)
        axes.scatter([100 * verdict.effect], [row], color=colour, zorder=3)
    axes.set_xlim(*(100 * edge for edge in window(verdicts)))
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    label = "" if result.best is None else _in_lines(result.best.label)
    axes.set_title(
        f"{label}\nagainst {'each' if result.rivals else 'the default'}, booted in turns", fontsize=9, loc="right"
    )
    axes.set_xlabel(f"difference in %; grey: not detectable\nintervals of {levels(result.verdicts, result.level)}")
    axes.grid(axis="x", alpha=0.3)


def window(verdicts: Sequence[Verdict]) -> tuple[float, float]:
    """From where to where the axis reaches: all intervals, and what is not detectable up to their farthest end."""
    edges = [edge for v in verdicts for edge in (v.ci_low, v.ci_high, v.effect) if edge is not None] or [-0.1, 0.1]
    reach = max(map(abs, edges))
    unseen = [min(max(edge, -reach), reach) for v in verdicts for edge in v.detectable or ()]
    low, high = min(*edges, *unseen, 0.0), max(*edges, *unseen, 0.0)
    air = 0.06 * (high - low)
    return max(low - air, _LEAST), high + air


def _values(result: StudyResult, spec: RuntimeSpec, workload: str, metric: str, phase: Phase) -> list[float]:
    of_load = [one for one in result.records if one.trial.runtime == spec and one.trial.workload.name == workload]
    return [one.value for one in boot_values([one for one in of_load if one.phase == phase], metric)]
