"""From two names on the command line to a table of verdicts."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from dsabench.cli.compare_published import compare_single_runs, is_single_run
from dsabench.cli.compare_slices import compare_slices
from dsabench.cli.show_results import load_records
from dsabench.cli.show_sweep import verdict_table
from dsabench.errors import InputError
from dsabench.model.metrics import METRICS
from dsabench.model.record import Record
from dsabench.model.verdict import Verdict
from dsabench.reporting.comparison import DEFAULT_METRICS, Side, compare_sides


def run_compare(names: tuple[str, str], metrics: list[str], *, across: bool, gate: bool, as_json: bool) -> int:
    """Print the verdicts; exit code 1 when a gate was asked for and something is worse."""
    if any(map(is_single_run, names)):
        return compare_single_runs(names, lambda name: _side(name).records, metrics, gate=gate, as_json=as_json)
    _require_metrics(metrics)
    base, candidate = (_side(name) for name in names)
    verdicts = compare_sides(base, candidate, metrics or DEFAULT_METRICS, across=across)
    if as_json:
        print(json.dumps([verdict.model_dump() for verdict in verdicts]))
    else:
        _print(Console(), verdicts, f"{candidate.name} against {base.name}", base)
    return 1 if gate and any(verdict.verdict == "worse" for verdict in verdicts) else 0


def run_compare_slices(names: tuple[str, str], metrics: list[str], *, across: bool, as_json: bool) -> None:
    """Hold the slices of the second name against the deployments of the first."""
    _require_metrics(metrics)
    measured, slices = (_side(name) for name in names)
    compare_slices(measured, slices, metrics, across=across, as_json=as_json)


def _require_metrics(metrics: Sequence[str]) -> None:
    for metric in metrics:
        if metric not in METRICS:
            near = difflib.get_close_matches(metric, METRICS, n=1)
            raise InputError(f"{metric}: no such metric" + (f"; did you mean {near[0]}?" if near else ""))


def _print(console: Console, verdicts: Sequence[Verdict], title: str, base: Side) -> None:
    """The verdicts that rest on several boots as a table; the others as a count, for they can decide nothing."""
    settings = {record.id: _knobs(record) for record in base.records}
    shown = [v for v in verdicts if min(v.n_base, v.n_candidate) > 1 or v.verdict != "inconclusive"]
    if shown:
        console.print(verdict_table(shown, title, settings))
    for reason in dict.fromkeys(f"{v.workload} {v.metric}: {v.reason}" for v in shown if v.verdict == "inconclusive"):
        console.print(reason, markup=False, highlight=False)
    if left_out := len(verdicts) - len(shown):
        words = "comparisons have one boot on a side and so decide nothing (--json has them)"
        console.print(f"{left_out} {words}", markup=False, highlight=False)


def _knobs(record: Record) -> str:
    return " ".join(f"{name}={value}" for name, value in record.trial.runtime.knobs.items())


def _side(name: str) -> Side:
    place, hash_, prefix = name.rpartition("#")
    if not hash_ or Path(name).exists():
        place, prefix = name, ""
    records = tuple(record for _, record in load_records(Path(place)) if record.id.startswith(prefix))
    if not records:
        raise InputError(f"{name}: no record there")
    return Side(name, records)
