"""From two names on the command line to a table of verdicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from dsabench.cli.compare_published import compare_single_runs, is_single_run
from dsabench.cli.show_results import load_records
from dsabench.cli.tables import VerdictTable
from dsabench.errors import InputError
from dsabench.model.metrics import require_metrics
from dsabench.model.record import Record
from dsabench.model.verdict import Verdict
from dsabench.reporting.arms import Place, PlaceComparison, compare_places, without_shared
from dsabench.reporting.comparison import DEFAULT_METRICS, ComparedSide
from dsabench.reporting.headings import headings
from dsabench.reporting.verdict_markdown import verdicts_markdown
from dsabench.results.places import CommitPath as CommitPlace
from dsabench.results.places import find_place, read_at
from dsabench.stats.occasions import NO_VERDICT, ApartOptions


def run_compare(
    names: tuple[str, str],
    metrics: list[str],
    *,
    across: bool,
    gate: bool,
    as_json: bool,
    as_markdown: bool = False,
    apart: ApartOptions = NO_VERDICT,
) -> int:
    """Print the verdicts; exit code 2 when nothing can be judged, 1 when a gate was asked for and something is worse."""
    if any(map(is_single_run, names)):
        return compare_single_runs(names, lambda name: side_of(name).records, metrics, gate=gate, as_json=as_json)
    base, found = _compare(names, metrics, across=across, apart=apart)
    refusal = found.refusal if found.verdicts else _nothing_new(names)
    if as_json:
        print(json.dumps(_as_json(found, refusal)))
    elif found.verdicts and as_markdown:
        print(_in_markdown(names, base, found))
    elif found.verdicts:
        print(found.headline)
        _print(Console(), found.verdicts, _title(names), base)
    if refusal is not None:
        print(f"error: {refusal}", file=sys.stderr)
        return 2
    return 1 if gate and any(verdict.verdict == "worse" for verdict in found.verdicts) else 0


def _as_json(found: PlaceComparison, refusal: str | None) -> dict[str, object]:
    verdicts = [
        {**verdict.model_dump(), "interleaved": turns}
        for verdict, turns in zip(found.verdicts, found.interleaved, strict=True)
    ]
    interleaved = bool(verdicts) and all(found.interleaved)
    return {"interleaved": interleaved, "pairs": found.pairs, "reason": refusal, "verdicts": verdicts}


def compared(names: tuple[str, str], metrics: list[str], *, across: bool) -> str:
    """The verdicts as Markdown."""
    base, found = _compare(names, metrics, across=across)
    return _in_markdown(names, base, found) if found.verdicts else _nothing_new(names)


def _compare(
    names: tuple[str, str],
    metrics: list[str],
    *,
    across: bool,
    apart: ApartOptions = NO_VERDICT,
) -> tuple[Place, PlaceComparison]:
    """The base and the verdicts; none where nothing was measured since."""
    require_metrics(metrics)
    base, candidate = (_place_of(name) for name in names)
    new = without_shared(base, candidate)
    if not new.folders:
        return base, PlaceComparison((), ())
    return base, compare_places(base, new, metrics or DEFAULT_METRICS, across=across, apart=apart)


def _title(names: tuple[str, str]) -> str:
    return f"{names[1]} against {names[0]}"


def _nothing_new(names: tuple[str, str]) -> str:
    return f"{_title(names)}: the same records or copies of them, nothing was measured since"


def _in_markdown(names: tuple[str, str], base: Place, found: PlaceComparison) -> str:
    table = verdicts_markdown(found.verdicts, _title(names), headings(base.records, found.verdicts))
    return f"{found.headline}\n\n{table}"


def _print(console: Console, verdicts: Sequence[Verdict], title: str, base: Place) -> None:
    """The verdicts that rest on several boots as a table; the others as a count, for they can decide nothing."""
    shown = [v for v in verdicts if min(v.n_base, v.n_candidate) > 1 or v.verdict != "inconclusive"]
    heading = headings(base.records, shown)
    if shown:
        console.print(VerdictTable(shown, title, heading))
    for reason in dict.fromkeys(f"{heading(v)} {v.metric}: {v.reason}" for v in shown if v.verdict == "inconclusive"):
        console.print(reason, markup=False, highlight=False)
    if left_out := len(verdicts) - len(shown):
        words = "comparisons have one boot on a side and so decide nothing (--json has them)"
        console.print(f"{left_out} {words}", markup=False, highlight=False)


def side_of(name: str) -> ComparedSide:
    """A folder, a journal, or a commit (`REF`, `REF:PATH`), each with `#TRIAL` behind it or not.

    Raises:
        InputError: it is none of these, or has no record.

    """
    return ComparedSide(name, tuple(record for _, record in _found(name)))


def _place_of(name: str) -> Place:
    """The same with the folders of the journals, as they lie below the name."""
    found = _found(name)
    where = find_place(name).where
    top = where if isinstance(where, Path) else Path(where.path)
    folders: dict[str, list[Record]] = {}
    for journal, record in found:
        folder = journal.parent.relative_to(top).as_posix() if journal != top else "."
        folders.setdefault(folder, []).append(record)
    return Place(name, {folder: tuple(records) for folder, records in folders.items()})


def _found(name: str) -> list[tuple[Path, Record]]:
    """Its records, each with its journal."""
    place = find_place(name)
    everything = load_records(place.where) if isinstance(place.where, Path) else _of_commit(place.where)
    found = [(journal, record) for journal, record in everything if record.id.startswith(place.prefix)]
    if not found:
        raise InputError(f"{name}: no record there")
    return found


def _of_commit(place: CommitPlace) -> list[tuple[Path, Record]]:
    readings = read_at(place)
    for _, reading in readings:
        for problem in reading.problems:
            print(f"warning: {problem}", file=sys.stderr)
    return [(path, record) for path, reading in readings for record in reading.records]
