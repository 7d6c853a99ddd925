"""`dsabench compare` for evals: from two names to a verdict for each eval that both have."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from dsabench.cli.show_results import load_records
from dsabench.errors import InputError
from dsabench.evals.compare import ComparedEval, compare_evals
from dsabench.evals.lm_eval import is_lm_eval, parse_lm_eval
from dsabench.evals.sample import EvalSample
from dsabench.evals.sample_log import parse_samples, read_samples
from dsabench.model.evals import EvalTask
from dsabench.model.record import Record, Scored
from dsabench.results.journal import FILE_NAME
from dsabench.results.places import CommitPath, find_commit, find_place, read_at, read_file_at

MARGIN = 0.01


def are_samples(names: tuple[str, str]) -> bool:
    """Whether a name is a file of samples, and so the comparison one of evals."""
    return any(find_sample_file(name) is not None for name in names)


def run_compare_evals(names: tuple[str, str], margin: float | None, *, gate: bool, as_json: bool) -> int:
    """Print the verdicts; exit code 1 when a gate was asked for and any is not a yes."""
    base = _sides(names[0])
    candidate = _sides(names[1], frozenset(run for side in base.values() for run in side.runs))
    shared = [eval_ for eval_ in base if eval_ in candidate]
    if not shared:
        raise InputError(f"{names[0]} has {', '.join(base)}, {names[1]} has {', '.join(candidate)}: no eval in common")
    verdicts = [compare_evals(base[name], candidate[name], MARGIN if margin is None else margin) for name in shared]
    if as_json:
        print(json.dumps([verdict.model_dump() for verdict in verdicts]))
    else:
        console = Console()
        for verdict in verdicts:
            console.print(f"{verdict.workload}: {verdict.reason}", markup=False, highlight=False, soft_wrap=True)
    return 1 if gate and any(verdict.is_refusal for verdict in verdicts) else 0


def _sides(name: str, known: frozenset[str] = frozenset()) -> dict[str, ComparedEval]:
    """Eval → its samples: of a file, or of every record at or below a place.

    Runs that are known are left out where there are others: what a later commit has beside those of an earlier one.
    """
    if (file := find_sample_file(name)) is not None:
        of_harness: dict[str, list[EvalSample]] = {}
        for sample in file.read():
            of_harness.setdefault(sample.harness_id, []).append(sample)
        return {eval_: ComparedEval(name, eval_, tuple(one), (file.name,)) for eval_, one in of_harness.items()}
    found: dict[str, list[StoredEval]] = {}
    for run in find_runs(name):
        task = run.record.trial.workload
        assert isinstance(task, EvalTask)
        found.setdefault(task.harness_id, []).append(run)
    return {
        eval_: _side(name, eval_, [run for run in runs if run.name not in known] or runs)
        for eval_, runs in found.items()
    }


def _side(name: str, eval_: str, runs: list[StoredEval]) -> ComparedEval:
    """Runs of one trial are repeats of each other; those of several trials are not one side."""
    records = [run.record for run in runs]
    if len({record.id for record in records}) > 1:
        shown = "; ".join(_told_apart(name.partition("#")[0], records)[:4])
        raise InputError(f"{name}: {len({r.id for r in records})} settings of {eval_}; name one of them: {shown}")
    kept = [(run.name, samples) for run in runs if (samples := run.read())]
    if not kept:
        raise InputError(f"{name}: {eval_}: no samples were kept, so nothing can be paired")
    samples = tuple(sample for _, of_run in kept for sample in of_run)
    return ComparedEval(name, records[0].trial.workload.name, samples, tuple(run for run, _ in kept))


def _told_apart(place: str, records: list[Record]) -> list[str]:
    """`PLACE#TRIAL (what no other has)` for each trial."""
    settings = {record.id: _settings(record) for record in records}
    differing = {
        name
        for one in settings.values()
        for name, value in one.items()
        if any(other.get(name) != value for other in settings.values())
    }
    return [
        f"{place}#{trial[:10]} ({', '.join(f'{name} {one[name]}' for name in sorted(differing) if name in one)})"
        for trial, one in settings.items()
    ]


def _settings(record: Record) -> dict[str, str]:
    runtime, task = record.trial.runtime, record.trial.workload.model_dump(exclude_none=True)
    told = {"model": runtime.model, "base_url": runtime.base_url or "", **runtime.knobs, **task}
    return {name: str(value) for name, value in told.items() if not name.endswith("sha256")}


@dataclass(frozen=True, slots=True)
class StoredEval:
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
class EvalSampleFile:
    """A file of samples by itself, or a folder of lm-evaluation-harness's."""

    name: str
    read: Callable[[], tuple[EvalSample, ...]]


def find_sample_file(name: str) -> EvalSampleFile | None:
    """The file of samples that the name means; None where it means something else.

    Lines of other JSONL files (journals, bench_serving's) do not name a harness. Every samples_*.jsonl below a folder of
    lm-evaluation-harness is one run.
    """
    path = Path(name)
    if path.is_dir() and not any(path.rglob(FILE_NAME)):
        runs = sorted(path.rglob("samples_*.jsonl"))
        if runs and all(is_lm_eval(_first_line(run)) for run in runs):
            return EvalSampleFile(
                str(path.resolve()), lambda: parse_lm_eval((str(run), run.read_bytes()) for run in runs)
            )
    if path.suffix != ".jsonl" or path.name == FILE_NAME:
        return None
    if path.is_file():
        is_samples = _is_samples(_first_line(path))
        return EvalSampleFile(str(path.resolve()), lambda: read_samples(path)) if is_samples else None
    commit = None if path.exists() else find_commit(name)
    if commit is None:
        return None
    data = read_file_at(commit.commit, commit.path)
    is_samples = _is_samples(data.partition(b"\n")[0])
    return EvalSampleFile(str(commit), lambda: parse_samples(data, str(commit))) if is_samples else None


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline()


def _is_samples(line: bytes) -> bool:
    return b'"harness_id"' in line or is_lm_eval(line)


def find_runs(name: str) -> list[StoredEval]:
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


def _on_disk(place: Path) -> list[StoredEval]:
    def run(path: Path, record: Record) -> StoredEval:
        samples = _samples_of(record)
        return StoredEval(record, lambda: () if samples is None else read_samples(path.parent / samples))

    return [run(path, record) for path, record in load_records(place)]


def _in_commit(place: CommitPath) -> list[StoredEval]:
    def run(path: Path, record: Record) -> StoredEval:
        samples = _samples_of(record)
        file = None if samples is None else (path.parent / samples).as_posix()
        return StoredEval(record, lambda: () if file is None else _parsed(place.commit, file))

    return [run(path, record) for path, reading in read_at(place) for record in reading.records]


def _parsed(commit: str, file: str) -> tuple[EvalSample, ...]:
    return parse_samples(read_file_at(commit, file), f"{commit[:12]}:{file}")


def _samples_of(record: Record) -> str | None:
    return record.outcome.samples if isinstance(record.outcome, Scored) else None
