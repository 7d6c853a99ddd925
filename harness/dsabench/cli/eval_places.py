"""Where finished evals lie: a file of samples, a folder or journal, or one of these in a commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dsabench.cli.show_results import load_records
from dsabench.errors import InputError
from dsabench.evals.sample import EvalSample
from dsabench.evals.sample_log import parse_samples, read_samples
from dsabench.model.record import Record, Scored
from dsabench.results.journal import FILE_NAME
from dsabench.results.places import CommitPath, find_commit, find_place, read_at, read_file_at


@dataclass(frozen=True, slots=True)
class Run:
    """A finished eval."""

    record: Record
    read: Callable[[], tuple[EvalSample, ...]]
    """Its samples; none where they were not kept."""

    @property
    def name(self) -> str:
        """The same wherever the record is found."""
        record = self.record
        return f"{record.id}:{record.environment.fingerprint}:{record.occasion}:{record.boot}"


@dataclass(frozen=True, slots=True)
class SampleFile:
    """A file of samples by itself."""

    name: str
    read: Callable[[], tuple[EvalSample, ...]]


def find_sample_file(name: str) -> SampleFile | None:
    """The file of samples that the name means; None where it means something else.

    Lines of other JSONL files (journals, bench_serving's) do not name a harness.
    """
    path = Path(name)
    if path.suffix != ".jsonl" or path.name == FILE_NAME:
        return None
    if path.is_file():
        with path.open("rb") as file:
            is_samples = b'"harness_id"' in file.readline()
        return SampleFile(str(path.resolve()), lambda: read_samples(path)) if is_samples else None
    commit = None if path.exists() else find_commit(name)
    if commit is None:
        return None
    data = read_file_at(commit.commit, commit.path)
    is_samples = b'"harness_id"' in data.partition(b"\n")[0]
    return SampleFile(str(commit), lambda: parse_samples(data, str(commit))) if is_samples else None


def find_runs(name: str) -> list[Run]:
    """Every finished eval at or below a place, or of a trial of it (`PLACE#TRIAL`).

    Raises:
        InputError: there is none.

    """
    place = find_place(name)
    found = _on_disk(place.where) if isinstance(place.where, Path) else _in_commit(place.where)
    runs = [run for run in found if isinstance(run.record.outcome, Scored) and run.record.trial.kind == "eval"]
    runs = [run for run in runs if run.record.id.startswith(place.prefix)]
    if not runs:
        raise InputError(f"{name}: no finished eval there")
    return runs


def _on_disk(place: Path) -> list[Run]:
    def run(path: Path, record: Record) -> Run:
        samples = _samples_of(record)
        return Run(record, lambda: () if samples is None else read_samples(path.parent / samples))

    return [run(path, record) for path, record in load_records(place)]


def _in_commit(place: CommitPath) -> list[Run]:
    def run(path: Path, record: Record) -> Run:
        samples = _samples_of(record)
        file = None if samples is None else (path.parent / samples).as_posix()
        return Run(record, lambda: () if file is None else _parsed(place.commit, file))

    return [run(path, record) for path, reading in read_at(place) for record in reading.records]


def _parsed(commit: str, file: str) -> tuple[EvalSample, ...]:
    return parse_samples(read_file_at(commit, file), f"{commit[:12]}:{file}")


def _samples_of(record: Record) -> str | None:
    return record.outcome.samples if isinstance(record.outcome, Scored) else None
