"""From two names on the command line to a table of verdicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from dsabench.cli.compare_published import compare_single_runs, is_single_run
from dsabench.cli.compare_slices import compare_slices
from dsabench.cli.metric_names import require_metrics
from dsabench.cli.named_place import named_place
from dsabench.cli.show_results import load_records
from dsabench.cli.show_sweep import verdict_table
from dsabench.cli.stood_still import stood_still
from dsabench.errors import InputError
from dsabench.model.record import Record
from dsabench.model.verdict import Verdict
from dsabench.reporting.comparison import DEFAULT_METRICS, Side, compare_sides, without_shared
from dsabench.reporting.verdict_markdown import verdicts_markdown
from dsabench.store.git_journals import Place, read_at


def run_compare(
    names: tuple[str, str], metrics: list[str], *, across: bool, gate: bool, as_json: bool, as_markdown: bool = False
) -> int:
    """Print the verdicts; exit code 1 when a gate was asked for and something is worse."""
    if any(map(is_single_run, names)):
        return compare_single_runs(names, lambda name: side_of(name).records, metrics, gate=gate, as_json=as_json)
    base, candidate, verdicts = _compare(names, metrics, across=across)
    if as_json:
        print(json.dumps([verdict.model_dump() for verdict in verdicts]))
    elif as_markdown:
        print(_in_markdown(base, candidate, verdicts))
    else:
        _print(Console(), verdicts, f"{candidate.name} against {base.name}", base)
    return 1 if gate and any(verdict.verdict == "worse" for verdict in verdicts) else 0


def compared(names: tuple[str, str], metrics: list[str], *, across: bool) -> str:
    """The verdicts as Markdown."""
    return _in_markdown(*_compare(names, metrics, across=across))


def _compare(names: tuple[str, str], metrics: list[str], *, across: bool) -> tuple[Side, Side, tuple[Verdict, ...]]:
    require_metrics(metrics)
    base, candidate = (side_of(name) for name in names)
    candidate = without_shared(base, candidate)
    return base, candidate, tuple(compare_sides(base, candidate, metrics or DEFAULT_METRICS, across=across))


def _in_markdown(base: Side, candidate: Side, verdicts: Sequence[Verdict]) -> str:
    return verdicts_markdown(verdicts, f"{candidate.name} against {base.name}", settings_of(base.records))


def run_compare_slices(names: tuple[str, str], metrics: list[str], *, across: bool, as_json: bool) -> None:
    """Hold the slices of the second name against the deployments of the first."""
    require_metrics(metrics)
    measured, slices = (_found(name) for name in names)
    sides = Side(names[0], tuple(r for _, r in measured)), Side(names[1], tuple(r for _, r in slices))
    compare_slices(*sides, metrics, across=across, as_json=as_json, stood_still=stood_still((*measured, *slices)))


def _print(console: Console, verdicts: Sequence[Verdict], title: str, base: Side) -> None:
    """The verdicts that rest on several boots as a table; the others as a count, for they can decide nothing."""
    settings = settings_of(base.records)
    shown = [v for v in verdicts if min(v.n_base, v.n_candidate) > 1 or v.verdict != "inconclusive"]
    if shown:
        console.print(verdict_table(shown, title, settings))
    for reason in dict.fromkeys(f"{v.workload} {v.metric}: {v.reason}" for v in shown if v.verdict == "inconclusive"):
        console.print(reason, markup=False, highlight=False)
    if left_out := len(verdicts) - len(shown):
        words = "comparisons have one boot on a side and so decide nothing (--json has them)"
        console.print(f"{left_out} {words}", markup=False, highlight=False)


def settings_of(records: Sequence[Record]) -> dict[str, str]:
    """Trial → its knobs, those that are equal in all of them left out."""
    trials = {record.id: record.trial.runtime.knobs for record in records}
    first = next(iter(trials.values()), {})
    same = {name for name, value in first.items() if all(knobs.get(name) == value for knobs in trials.values())}
    return {
        trial: " ".join(f"{name}={value}" for name, value in knobs.items() if name not in same)
        for trial, knobs in trials.items()
    }


def side_of(name: str) -> Side:
    """A folder, a journal, or a commit (`REF`, `REF:PATH`), each with `#TRIAL` behind it or not.

    Raises:
        InputError: it is none of these, or has no record.

    """
    return Side(name, tuple(record for _, record in _found(name)))


def _found(name: str) -> list[tuple[Path, Record]]:
    """Its records, each with its journal."""
    place = named_place(name)
    everything = load_records(place.where) if isinstance(place.where, Path) else _of_commit(place.where)
    found = [(journal, record) for journal, record in everything if record.id.startswith(place.prefix)]
    if not found:
        raise InputError(f"{name}: no record there")
    return found


def _of_commit(place: Place) -> list[tuple[Path, Record]]:
    readings = read_at(place)
    for _, reading in readings:
        for problem in reading.problems:
            print(f"warning: {problem}", file=sys.stderr)
    return [(path, record) for path, reading in readings for record in reading.records]
