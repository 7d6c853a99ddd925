"""Measurements of one trial over time: dashboards per machine, model and workload, with the changes that a test confirms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from dsabench.machine.cpu_use import is_disturbed
from dsabench.model.metrics import METRICS
from dsabench.model.value import canonical_json
from dsabench.reporting.site.canvas import QUIET, SERIES, draw, linked
from dsabench.reporting.site.entry import Entry, machine_of
from dsabench.reporting.site.figures import show, show_date
from dsabench.stats.changes import SERIES_MIN, LevelChange, find_changes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METRICS = ("total_throughput_tok_s", "ttft_ms.p50", "tpot_ms.p50", "ttft_ms.p99", "accept_length.mean")
_SERIES_MAX = 40
_LINKED = 150


@dataclass(frozen=True, slots=True)
class Turn:
    """One confirmed change, and the record from which on it holds."""

    metric: str
    change: LevelChange
    before: Entry
    after: Entry

    @property
    def what_changed(self) -> str:
        """What is known to differ between the records on both sides."""
        sides = [entry.record.environment for entry in (self.before, self.after)]
        facts = [
            (f"{sides[0].runtime.kind}", *(side.runtime.version for side in sides)),
            ("its code", *(side.runtime.wheel_hash[:8] for side in sides)),
            ("torch", *(side.runtime.torch or "none" for side in sides)),
            ("driver", *(side.hardware.driver or "none" for side in sides)),
            ("dsabench", *((side.dsabench_commit or side.dsabench_version)[:10] for side in sides)),
        ]
        busy = [e.result is not None and is_disturbed(e.result.warnings) for e in (self.before, self.after)]
        facts.append(("other processes on the cores", *("yes" if one else "no" for one in busy)))
        named = [f"{name} {old} → {new}" for name, old, new in facts if old != new]
        return ", ".join(named) or "nothing that is recorded"


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One trial on one machine."""

    title: str
    folders: str
    """Where its records lie."""
    setting: str
    workload: str
    entries: tuple[Entry, ...]
    """In order of time, a boot each."""
    pictures: tuple[Markup, ...]
    turns: tuple[Turn, ...]


def dashboards(entries: Sequence[Entry]) -> list[Dashboard]:
    """Those with enough boots for a change to show; those that changed first, then by boots."""
    grouped: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry.is_load_test and entry.result is not None:
            hardware = entry.record.environment.hardware
            gpus = tuple(gpu.model_copy(update={"uuid": None}) for gpu in hardware.gpus)
            machine = canonical_json(hardware.model_copy(update={"gpus": gpus, "driver": None, "cuda": None}))
            spec = entry.spec.model_copy(update={"version": None})
            trial = canonical_json(entry.record.trial.model_copy(update={"runtime": spec}))
            grouped.setdefault((machine, trial), []).append(entry)
    series = [_quiet(one) for group in grouped.values() for one in _apart(group)]
    long = [sorted(g, key=lambda e: e.record.started_at) for g in series if _boots(g) >= SERIES_MIN]
    made = [_dashboard(number, group) for number, group in enumerate(sorted(long, key=len, reverse=True)[:_SERIES_MAX])]
    return sorted(made, key=lambda one: -len(one.turns))


def _quiet(entries: list[Entry]) -> list[Entry]:
    """Without boots that had neighbours on their cores, as `ci` judges; all where too few are left for a series."""
    busy = {e.record.boot for e in entries if e.result is not None and is_disturbed(e.result.warnings)}
    quiet = [entry for entry in entries if entry.record.boot not in busy]
    return quiet if _boots(quiet) >= SERIES_MIN else entries


def _apart(entries: list[Entry]) -> list[list[Entry]]:
    """One series; one a folder where two folders were measured in turns, which are sides of a comparison."""
    folders: dict[Path, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.record.started_at):
        folders.setdefault(entry.journal.parent, []).append(entry)
    spans = sorted((of[0].record.started_at, of[-1].record.started_at) for of in folders.values())
    overlap = any(following[0] < before[1] for before, following in pairwise(spans))
    return list(folders.values()) if overlap else [entries]


def _boots(entries: Sequence[Entry]) -> int:
    return len({entry.record.boot for entry in entries})


def _dashboard(number: int, entries: Sequence[Entry]) -> Dashboard:
    latest = entries[-1]
    pictures, turns = [], []
    for metric in _METRICS:
        direction = METRICS[metric].direction
        assert direction is not None, "these have one"
        having = [entry for entry in entries if entry.value(metric) is not None]
        if len(having) < SERIES_MIN:
            continue
        values = [entry.value(metric) or 0.0 for entry in having]
        changes = find_changes(values, direction)
        turns += [Turn(metric, change, having[change.index - 1], having[change.index]) for change in changes]
        pictures.append(Markup(_draw(f"history{number}-{metric}", metric, having, values, changes)))  # noqa: S704  (drawn here)
    return Dashboard(
        title=f"{machine_of(latest.record.environment)} · {latest.spec.model}",
        folders=", ".join(sorted({str(entry.journal.parent) for entry in entries})),
        setting=" ".join(f"{name}={value}" for name, value in latest.spec.knobs.items()),
        workload=latest.workload.name,
        entries=tuple(entries),
        pictures=tuple(pictures),
        turns=tuple(turns),
    )


def _draw(
    name: str, metric: str, entries: Sequence[Entry], values: Sequence[float], changes: Sequence[LevelChange]
) -> str:
    borders = [0, *(change.index for change in changes), len(values)]

    def plot(axes: Axes) -> None:
        linked_to = entries if len(entries) <= _LINKED else []
        dots = axes.scatter(
            range(len(values)), values, s=22, color=SERIES[0], alpha=0.75, lw=0, rasterized=not linked_to
        )
        dots.set_urls([entry.page for entry in linked_to])
        for start, end in pairwise(borders):
            level = sum(values[start:end]) / (end - start)
            axes.plot([start - 0.4, end - 0.6], [level, level], color=QUIET, lw=1.4)
        for number, change in enumerate(changes):
            colour = SERIES[1] if change.is_worse else SERIES[2]
            axes.axvline(change.index - 0.5, color=colour, lw=1.2, ls="--")
            axes.annotate(
                f"{100 * change.effect:+.1f} %", (change.index - 0.5, 1), xycoords=("data", "axes fraction"),
                xytext=(4, -10 - 11 * (number % 3)), textcoords="offset points", color=colour, fontsize=8.5,
            )  # fmt: skip
        axes.set_title(f"{metric}, {METRICS[metric].better} is better")
        axes.set_xlabel("boots in order of time")
        axes.set_ylim(bottom=0)

    words = f"{metric} of {len(values)} boots in order of time, {len(changes)} confirmed changes."
    titles = {e.page: f"{show_date(e.record.started_at)}: {show(v)}" for e, v in zip(entries, values, strict=True)}
    return linked(draw(name, words, plot, height_in=2.8), titles)
