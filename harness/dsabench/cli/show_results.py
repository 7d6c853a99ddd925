"""Print records, and draw one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dsabench.cli.tables import metrics_tables
from dsabench.errors import InputError, printable
from dsabench.model.record import Failed, Measured, Record, Scored
from dsabench.reporting.numbers import show_count, show_figure
from dsabench.reporting.repeats import averaged, repeats_of
from dsabench.results.journal import newest_records, read_journal
from dsabench.results.places import find_journals, find_record, own_journals


def load_records(place: Path) -> list[tuple[Path, Record]]:
    """Every record at or below a place, with its journal. Damaged lines are reported on stderr."""
    found = []
    for path in find_journals(place):
        reading = read_journal(path)
        for problem in reading.problems:
            print(f"warning: {problem}", file=sys.stderr)
        found += [(path, record) for record in reading.records]
    return found


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The records that `results list` shows."""

    study: str | None = None
    since: datetime | None = None
    only_failed: bool = False
    limit: int | None = None
    """Number of records at most, the newest ones; None shows all."""
    everything: bool = False
    """Also show the committed evidence of a checkout."""

    def takes(self, record: Record) -> bool:
        """Whether the record is wanted."""
        return (
            (self.study is None or record.study == self.study)
            and (self.since is None or record.started_at >= self.since)
            and not (self.only_failed and record.outcome.kind != "failed")
        )


def list_records(place: Path, options: ListOptions, *, as_json: bool) -> None:
    """Print the newest study first; or one JSON line per record, the newest first."""
    journals = find_journals(place) if options.everything else own_journals(place)
    rows = _newest_rows(journals, options)
    if as_json:
        for _, record in rows:
            print(record.model_dump_json(exclude_none=True))
        return
    console = Console()
    if not rows:
        console.print("no records")
        return
    groups: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for path, record in rows:
        group = groups.setdefault((record.study, _folder(path, place)), {})
        group.setdefault(setting_of(record), []).append(record)
    several = len({path for path, _ in rows}) > 1
    for (study, folder), settings in groups.items():
        for setting, records in settings.items():
            where = f" in {folder}" if several else ""
            console.print(Text(printable(f"{study}{where}: {setting}"), style="bold", overflow="fold"))
            table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
            for record in records:
                table.add_row(*map(escape, _row(record)), style="red" if record.outcome.kind == "failed" else None)
            console.print(table)
    if options.limit is not None and len(rows) == options.limit:
        console.print(f"the newest {options.limit} records; --limit N or --all shows more", style="dim")


def _newest_rows(journals: Sequence[Path], options: ListOptions) -> list[tuple[Path, Record]]:
    """The newest records of all journals together. Of each journal only as many are read as may be needed."""
    rows: list[tuple[Path, Record]] = []
    for path in journals:
        wanted = options.limit
        for one in newest_records(path):
            if isinstance(one, str):
                print(f"warning: {one}", file=sys.stderr)
            elif options.takes(one):
                rows.append((path, one))
                wanted = None if wanted is None else wanted - 1
            if wanted == 0:
                break
    rows.sort(key=lambda row: row[1].started_at, reverse=True)
    return rows[: options.limit]


def _folder(journal: Path, place: Path) -> str:
    """The folder of a journal, relative to the place that was named."""
    return "." if journal == place else journal.parent.relative_to(place).as_posix()


def setting_of(record: Record) -> str:
    """The knobs in one line."""
    return " ".join(f"{name}={value}" for name, value in record.trial.runtime.knobs.items()) or "no knobs"


def _row(record: Record) -> Iterable[str]:
    return f"  {record.id[:10]}:{record.occasion}", record.phase, printable(record.trial.workload.name), summary(record)


def summary(record: Record) -> str:
    """The outcome in a few words."""
    outcome = record.outcome
    if isinstance(outcome, Failed):
        return printable(f"failed in {outcome.stage}: {outcome.fault}")
    if isinstance(outcome, Scored):
        score, error = outcome.metrics["score"], outcome.metrics.get("score_standard_error")
        return f"score {score.value:.4f}" + (f" ± {error.value:.4f}" if error else "") + f", {score.n} questions"
    named = (("output_throughput_tok_s", "{} tok/s out"), ("ttft_ms.p50", "TTFT {} ms"), ("itl_ms.p50", "ITL {} ms"))
    return ", ".join(
        words.format(show_figure(outcome.metrics[name].value)) for name, words in named if name in outcome.metrics
    )


def show_record(place: Path, wanted: str, *, as_json: bool) -> None:
    """Print one record completely."""
    path, record = find_record(place, wanted)
    if as_json:
        print(record.model_dump_json(exclude_none=True, indent=2))
        return
    console = Console()
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for name, value in _facts(path, record):
        facts.add_row(name, escape(printable(value)))
    console.print(facts)
    outcome = record.outcome
    if isinstance(outcome, Failed):
        console.print(f"failed in {outcome.stage}: {outcome.fault}", style="red", markup=False)
        console.print(_lines(outcome.message), markup=False, highlight=False)
        if outcome.log_tail:
            console.print("\nlast lines of the log:", style="bold")
            console.print(_lines(outcome.log_tail), markup=False, highlight=False, soft_wrap=True)
        return
    alike = read_journal(path).records  # another folder may be of a patched runtime
    repeats = repeats_of(record, alike)
    for table in metrics_tables(outcome, repeats, console.width):
        console.print(table)
    if repeats:
        console.print(_what_is_averaged(record, averaged(record, alike)), highlight=False)
    for line in _limit_lines(outcome):
        console.print(printable(line), markup=False, highlight=False)
    for warning in outcome.warnings:
        console.print(f"warning: {printable(warning)}", markup=False, style="yellow")


def _limit_lines(outcome: Measured | Scored) -> Iterator[str]:
    """What limited the server, and the loads that were tried."""
    if isinstance(outcome, Measured) and outcome.bottleneck is not None:
        yield f"limit: {outcome.bottleneck.words}"
    if isinstance(outcome, Measured) and outcome.probes is not None:
        yield f"loads that were tried, and the share that met the SLO: {', '.join(one.words for one in outcome.probes)}"


def _lines(text: str) -> str:
    """Remove what could steer a terminal, keep the lines."""
    return "\n".join(map(printable, text.splitlines()))


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


def plot_samples(what: str, output: Path, results: Path) -> None:
    """Draw the requests of a record, and print the name of the picture.

    Raises:
        InputError: there is no such record or file, or it has no samples.

    """
    from dsabench.reporting.timeline import write_timeline
    from dsabench.results.samples import read_samples

    if what.endswith(".parquet"):
        file = Path(what)
        written = write_timeline(read_samples(file), output, file.name)
    else:
        journal, record = find_record(results, what)
        if isinstance(record.outcome, Failed):
            raise InputError(f"{what}: it failed ({record.outcome.fault}), so there is nothing to draw")
        if record.outcome.samples is None:
            raise InputError(f"{what}: its record has no samples")
        if record.trial.kind == "eval":
            raise InputError(f"{what}: an eval has no timeline; its samples are in {record.outcome.samples}")
        workload = record.trial.workload
        samples = read_samples(journal.parent / record.outcome.samples)
        title = f"{record.study}, {workload.name}: {setting_of(record)}"
        written = write_timeline(samples, output, title, workload)
    print(written)


def merge_results(sources: Sequence[str], into: Path, *, as_json: bool) -> None:
    """Merge, and say what was added."""
    from dsabench.results.merge import merge_journals

    merged = merge_journals(sources, into)
    for problem in merged.problems:
        print(f"warning: {problem}", file=sys.stderr)
    if as_json:
        print(json.dumps({"into": str(into), **asdict(merged)}, indent=1))
        return
    lost = f", {merged.without_samples} without (their folder has none)" if merged.without_samples else ""
    print(
        f"{into}: {show_count(merged.added, 'record')} added, {merged.known} there already; samples of {merged.samples} copied{lost}"
    )


def copy_results(folder: Path, url: str) -> None:
    """Copy, and say what was sent."""
    from dsabench.cli.progress import counting
    from dsabench.results.journal import FILE_NAME
    from dsabench.results.remote import RemoteCopy

    if not (folder / FILE_NAME).is_file():
        raise InputError(f"{folder}: no journal there ({FILE_NAME})")
    with counting("files") as told:
        sent = RemoteCopy(folder, url).update(told)
    print(f"{url}: {show_count(sent, 'file')} sent" if sent else f"{url}: has everything already")
