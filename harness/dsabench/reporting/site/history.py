"""Measurements of one trial over time: a strip of dots per metric, a boot each. `ci` judges; this page only shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

from markupsafe import Markup

from dsabench.machine.cpu_use import is_disturbed
from dsabench.model.environment import without_serials
from dsabench.model.metrics import METRICS
from dsabench.model.value import canonical_json
from dsabench.reporting.numbers import show_date, show_figure
from dsabench.reporting.site.entry import Entry, machine_of
from dsabench.results.machines import machine_name

_METRICS = ("total_throughput_tok_s", "ttft_ms.p50", "tpot_ms.p50", "ttft_ms.p99", "accept_length.mean")
_BOOTS_MIN = 6
"""Boots of a series; fewer are no history."""
_PANELS_MAX = 40
_LINKED = 300
"""Dots with a link of their own; of longer series all are one path."""
_WIDTH, _PANEL, _LEFT, _TOP = 400.0, 96.0, 8.0, 26.0


@dataclass(frozen=True, slots=True)
class HistoryPanel:
    """One trial on one machine."""

    title: str
    folders: str
    """Where its records lie."""
    setting: str
    workload: str
    entries: tuple[Entry, ...]
    """In order of time, a boot each."""
    strips: tuple[Markup, ...]


def history_panels(entries: Sequence[Entry]) -> list[HistoryPanel]:
    """Trials with six boots or more, those with most records first."""
    grouped: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry.is_load_test and entry.result is not None:
            environment = entry.record.environment
            hardware = without_serials(environment.hardware).model_copy(update={"driver": None, "cuda": None})
            machine = machine_name(environment) + canonical_json(hardware)
            spec = entry.spec.model_copy(update={"version": None})
            trial = canonical_json(entry.record.trial.model_copy(update={"runtime": spec}))
            grouped.setdefault((machine, trial), []).append(entry)
    series = [_quiet(one) for group in grouped.values() for one in _apart(group)]
    long = [sorted(one, key=lambda e: e.record.started_at) for one in series if _boots(one) >= _BOOTS_MIN]
    return [_panel(one) for one in sorted(long, key=len, reverse=True)[:_PANELS_MAX]]


def _quiet(entries: list[Entry]) -> list[Entry]:
    """Without boots that had neighbours on their cores, as `ci` judges; all where too few are left for a series."""
    busy = {e.record.boot for e in entries if e.result is not None and is_disturbed(e.result.warnings)}
    quiet = [entry for entry in entries if entry.record.boot not in busy]
    return quiet if _boots(quiet) >= _BOOTS_MIN else entries


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


def _panel(entries: Sequence[Entry]) -> HistoryPanel:
    latest = entries[-1]
    having = {metric: [entry for entry in entries if entry.value(metric) is not None] for metric in _METRICS}
    strips = [_strip(metric, of_metric) for metric, of_metric in having.items() if len(of_metric) >= _BOOTS_MIN]
    return HistoryPanel(
        title=f"{machine_of(latest.record.environment)} · {latest.spec.model}",
        folders=", ".join(sorted({str(entry.journal.parent) for entry in entries})),
        setting=" ".join(f"{name}={value}" for name, value in latest.spec.knobs.items()),
        workload=latest.workload.name,
        entries=tuple(entries),
        strips=tuple(Markup(strip) for strip in strips),  # noqa: S704  (drawn here, its texts escaped)
    )


def _strip(metric: str, entries: Sequence[Entry]) -> str:
    """An SVG element: boots in order of time from left to right, the value from 0 up."""
    values = [entry.value(metric) or 0.0 for entry in entries]
    top = max(*values, 1e-9)
    inner = _WIDTH - 2 * _LEFT
    places = [
        (_LEFT + inner * (i + 0.5) / len(values), _TOP + _PANEL * (1.0 - value / top)) for i, value in enumerate(values)
    ]
    if len(entries) > _LINKED:
        dots = f'<path class="dots" d="{"".join(f"M{x:.0f} {y:.1f}h0" for x, y in places)}"/>'
    else:
        dots = "".join(
            f'<a href="{escape(entry.page, quote=True)}"><title>{escape(_words(entry, value))}</title>'
            f'<circle cx="{x:.0f}" cy="{y:.1f}" r="3.4"/></a>'
            for entry, value, (x, y) in zip(entries, values, places, strict=True)
        )
    words = f"{metric}, {METRICS[metric].better} is better: 0 to {show_figure(top)}"
    height = _TOP + _PANEL + 18
    return (
        f'<svg class="strip" role="img" aria-label="{words}, of {len(values)} boots in order of time" '
        f'viewBox="0 0 {_WIDTH:g} {height:g}"><text x="0" y="12">{words}</text>'
        f'<path class="axis" d="M0 {_TOP:g}H{_WIDTH:g}M0 {_TOP + _PANEL:g}H{_WIDTH:g}"/>{dots}'
        f'<text x="0" y="{height - 4:g}">{show_date(entries[0].record.started_at)}</text>'
        f'<text class="tick" x="{_WIDTH:g}" y="{height - 4:g}">{show_date(entries[-1].record.started_at)}</text></svg>'
    )


def _words(entry: Entry, value: float) -> str:
    runtime = entry.record.environment.runtime
    return f"{show_date(entry.record.started_at)}, {runtime.kind} {runtime.version}: {show_figure(value)}"
