"""Speed against accuracy: what a faster setting costs in right answers, and which ones the gate refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsabench.model.record import Metric
from dsabench.reporting.numbers import show_figure, show_percent
from dsabench.reporting.site.canvas import LINE, QUIET, SERIES, TEXT, draw, linked
from dsabench.reporting.site.entry import Entry
from dsabench.reporting.site.study import Study
from dsabench.reporting.site.tradeoff import front

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class _Mark:
    """One setting that answered an eval."""

    score: Metric
    gain: float
    """Of the objective against the default, as a share of 1."""
    label: str
    entry: Entry
    why_not: str | None

    @property
    def says(self) -> str:
        score = f"score {show_figure(self.score.value)}"
        return f"{self.label}: {show_percent(self.gain)}, {score}" + (f"; {self.why_not}" if self.why_not else "")


def draw_accuracy(study: Study, eval_: str, root: str = "../") -> str | None:
    """The picture of one eval on a page below `root`; None where fewer than two settings have both figures."""
    marks = _marks(study, eval_)
    if len(marks) < 2:
        return None
    best = front(marks, lambda one: (-one.score.value, one.gain))[::-1]

    def plot(axes: Axes) -> None:
        for mark in marks:
            if mark.score.ci_low is not None and mark.score.ci_high is not None:
                axes.plot([mark.score.ci_low, mark.score.ci_high], [100 * mark.gain] * 2, color=QUIET, lw=1, zorder=1)
        passing = [mark for mark in marks if mark.why_not is None]
        refused = [mark for mark in marks if mark.why_not is not None]
        for shape, colour, some in (("o", SERIES[0], passing), ("X", SERIES[1], refused)):
            dots = axes.scatter(*_places(some), s=44, marker=shape, facecolors=colour, lw=0, zorder=3)
            dots.set_urls([f"{root}{mark.entry.page}" for mark in some])
        axes.step(*_places(best), where="pre", color=QUIET, lw=1.2, ls=":", zorder=2)
        default = next((one for one in marks if one.entry.spec.id == study.default.id), None)
        chosen = next((one for one in marks if _is_best(study, one)), None)
        for word, found, colour, below in (("default", default, TEXT, -13), ("best", chosen, SERIES[0], 7)):
            if found is not None:
                at, offset = (found.score.value, 100 * found.gain), (0, below)
                axes.annotate(
                    word, at, xytext=offset, textcoords="offset points", ha="center", fontsize=8.5, color=colour
                )
        axes.set_xlabel(f"score in {eval_}")
        axes.set_ylabel(f"{study.metric} against the default, %")
        axes.set_title("right and up is better")
        axes.margins(0.1)
        axes.grid(color=LINE)

    count = sum(mark.why_not is not None for mark in marks)
    words = f"{study.metric} against the score in {eval_} for {len(marks)} settings; {count} are refused."
    svg = draw(f"{study.slug}-{eval_}-accuracy", words, plot)
    return linked(svg, {f"{root}{mark.entry.page}": mark.says for mark in marks})


def _marks(study: Study, eval_: str) -> list[_Mark]:
    marks = []
    for setting in study.settings:
        entry = study.scores[eval_].get(setting.spec.id)
        is_default = setting.spec.id == study.default.id
        gain = 0.0 if is_default else study.against_default(setting)
        if entry is not None and gain is not None:
            score = entry.metrics["score"]
            refusal = study.refusals.get(setting.spec.id)
            marks.append(_Mark(score, gain, setting.label, entry, None if refusal is None else refusal.why))
    return marks


def _places(marks: Sequence[_Mark]) -> tuple[list[float], list[float]]:
    return [mark.score.value for mark in marks], [100 * mark.gain for mark in marks]


def _is_best(study: Study, mark: _Mark) -> bool:
    return study.best is not None and mark.entry.spec.id == study.best.spec.id
