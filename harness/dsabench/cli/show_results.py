"""Records on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dsabench.cli.figures import show_figure
from dsabench.cli.metrics_table import metrics_tables
from dsabench.errors import InputError
from dsabench.model.record import Failed, Record, Scored
from dsabench.reporting.repeats import averaged, repeats_of
from dsabench.results.journal import read_journal
from dsabench.results.places import find_journals


def load_records(place: Path) -> list[tuple[Path, Record]]:
    """Every record at or below a place with the journal that holds it; what is no record is warned of on stderr."""
    found = []
    for path in find_journals(place):
        reading = read_journal(path)
        for problem in reading.problems:
            print(f"warning: {problem}", file=sys.stderr)
        found += [(path, record) for record in reading.records]
    return found


def list_records(place: Path, *, study: str | None, only_failed: bool, as_json: bool) -> None:
    """A table, or the records' own JSON lines."""
    rows = [
        (path, record)
        for path, record in load_records(place)
        if (study is None or record.study == study) and not (only_failed and record.outcome.kind != "failed")
    ]
    if as_json:
        for _, record in rows:
            print(record.model_dump_json(exclude_none=True))
        return
    console = Console()
    if not rows:
        console.print("no records")
        return
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for path, record in rows:
        groups.setdefault((record.study, _folder(path, place), setting_of(record)), []).append(record)
    several = len({path for path, _ in rows}) > 1
    for (study_name, folder, setting), records in groups.items():
        where = f" in {folder}" if several else ""
        console.print(Text(f"{study_name}{where}: {setting}", style="bold", overflow="fold"))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for record in records:
            table.add_row(*map(escape, _row(record)), style="red" if record.outcome.kind == "failed" else None)
        console.print(table)


def _folder(journal: Path, place: Path) -> str:
    """Where a journal lies below the place that was named."""
    return "." if journal == place else journal.parent.relative_to(place).as_posix()


def setting_of(record: Record) -> str:
    """Its knobs in one line."""
    return " ".join(f"{name}={value}" for name, value in record.trial.runtime.knobs.items()) or "no knobs"


def _row(record: Record) -> Iterable[str]:
    return f"  {record.id[:10]}:{record.occasion}", record.phase, record.trial.workload.name, summary(record)


def summary(record: Record) -> str:
    """The outcome in a few words."""
    outcome = record.outcome
    if isinstance(outcome, Failed):
        return f"failed in {outcome.stage}: {outcome.fault}"
    if isinstance(outcome, Scored):
        score, error = outcome.metrics["score"], outcome.metrics.get("score_standard_error")
        return f"score {score.value:.4f}" + (f" ± {error.value:.4f}" if error else "") + f", {score.n} questions"
    named = (("output_throughput_tok_s", "{} tok/s out"), ("ttft_ms.p50", "TTFT {} ms"), ("itl_ms.p50", "ITL {} ms"))
    return ", ".join(
        words.format(show_figure(outcome.metrics[name].value)) for name, words in named if name in outcome.metrics
    )


def find_record(place: Path, wanted: str) -> tuple[Path, Record]:
    """The one record that `ID-PREFIX[:OCCASION]` names.

    Raises:
        InputError: none, or more than one.

    """
    prefix, _, occasion = wanted.partition(":")
    if occasion and not occasion.isdigit():
        raise InputError(f"{wanted}: the occasion behind ':' is a number")
    matches = [
        (path, record)
        for path, record in load_records(place)
        if record.id.startswith(prefix) and (not occasion or record.occasion == int(occasion))
    ]
    if not matches:
        raise InputError(f"{wanted}: no such record in {place} (dsabench results list --results {place})")
    if len(matches) > 1:
        raise InputError(f"{wanted} means {len(matches)} records: {_told_apart(matches)}")
    return matches[0]


def _told_apart(matches: Sequence[tuple[Path, Record]]) -> str:
    """The first six as the words that name each, with --results where the folder alone tells them apart."""
    several = len({path for path, _ in matches}) > 1
    names = [
        f"{record.id[:10]}:{record.occasion}" + (f" --results {path.parent}" if several else "")
        for path, record in matches[:6]
    ]
    return ", ".join(names) + (" …" if len(matches) > 6 else "")


def show_record(place: Path, wanted: str, *, as_json: bool) -> None:
    """One record whole."""
    path, record = find_record(place, wanted)
    if as_json:
        print(record.model_dump_json(exclude_none=True, indent=2))
        return
    console = Console()
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for name, value in _facts(path, record):
        facts.add_row(name, escape(value))
    console.print(facts)
    outcome = record.outcome
    if isinstance(outcome, Failed):
        console.print(f"failed in {outcome.stage}: {outcome.fault}", style="red", markup=False)
        console.print(outcome.message, markup=False, highlight=False)
        if outcome.log_tail:
            console.print("\nlast lines of the log:", style="bold")
            console.print(outcome.log_tail, markup=False, highlight=False, soft_wrap=True)
        return
    alike = [
        other for journal, other in load_records(place) if journal == path
    ]  # another folder may be a patched runtime's
    repeats = repeats_of(record, alike)
    for table in metrics_tables(outcome, repeats, console.width):
        console.print(table)
    if repeats:
        console.print(_what_is_averaged(record, averaged(record, alike)), highlight=False)
    for warning in outcome.warnings:
        console.print(f"warning: {warning}", markup=False, style="yellow")


def _what_is_averaged(record: Record, boots: Sequence[Record]) -> str:
    count, phases = len({one.boot for one in boots}), {one.phase for one in boots}
    of = "the confirmation" if phases == {"confirm"} else "this trial in this environment and folder"
    said = f"mean and its interval (cut at 0) are over {count} boots of {of}"
    return said if record in boots else f"{said}; this record, of the {record.phase}, is not among them"


def _facts(path: Path, record: Record) -> list[tuple[str, str]]:
    trial, environment = record.trial, record.environment
    gpus = ", ".join(gpu.name for gpu in environment.hardware.gpus) or "none"
    runtime = environment.runtime
    return [
        ("record", f"{record.id}:{record.occasion}"),
        ("journal", str(path)),
        ("study", f"{record.study}, {record.phase}, round {record.round}"),
        ("started", f"{record.started_at:%Y-%m-%d %H:%M:%S} UTC, {record.duration_s:.1f} s"),
        ("runtime", f"{runtime.kind} {runtime.version}, model {trial.runtime.model}, torch {runtime.torch}"),
        ("knobs", " ".join(f"{name}={value}" for name, value in trial.runtime.knobs.items())),
        ("env", " ".join(f"{name}={value}" for name, value in trial.runtime.env.items()) or "–"),
        ("workload", trial.workload.model_dump_json(exclude_none=True)),
        ("machine", f"{environment.hardware.cpu}, {environment.hardware.cpu_cores} cores, GPUs: {gpus}"),
        ("fingerprint", environment.fingerprint),
        ("boot", f"{record.boot}" + ("" if record.boot_s is None else f", ready after {record.boot_s:.1f} s")),
    ]
