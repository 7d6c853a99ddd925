"""From two names on the command line to a table of verdicts."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from rich.console import Console

from dsabench.cli.show_results import load_records
from dsabench.cli.show_sweep import verdict_table
from dsabench.errors import InputError
from dsabench.model.metrics import METRICS
from dsabench.reporting.comparison import DEFAULT_METRICS, Side, compare_sides


def run_compare(names: tuple[str, str], metrics: list[str], *, across: bool, gate: bool, as_json: bool) -> int:
    """Print the verdicts; exit code 1 when a gate was asked for and something is worse."""
    for metric in metrics:
        if metric not in METRICS:
            near = difflib.get_close_matches(metric, METRICS, n=1)
            raise InputError(f"{metric}: no such metric" + (f"; did you mean {near[0]}?" if near else ""))
    base, candidate = (_side(name) for name in names)
    verdicts = compare_sides(base, candidate, metrics or DEFAULT_METRICS, across=across)
    if as_json:
        print(json.dumps([verdict.model_dump() for verdict in verdicts]))
    else:
        console = Console()
        console.print(verdict_table(verdicts, f"{candidate.name} against {base.name}"))
        for verdict in verdicts:
            if verdict.verdict == "inconclusive":
                console.print(f"{verdict.workload} {verdict.metric}: {verdict.reason}", markup=False, highlight=False)
    return 1 if gate and any(verdict.verdict == "worse" for verdict in verdicts) else 0


def _side(name: str) -> Side:
    place, _, prefix = name.partition("#")
    records = tuple(record for _, record in load_records(Path(place)) if record.id.startswith(prefix))
    if not records:
        raise InputError(f"{name}: no record there")
    return Side(name, records)
