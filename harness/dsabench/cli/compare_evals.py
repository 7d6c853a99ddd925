"""`dsabench compare` for evals: from two names to a verdict for each eval that both have."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from dsabench.cli.show_results import load_records
from dsabench.errors import InputError
from dsabench.evals.compare import Side, compare_evals
from dsabench.evals.sample import EvalSample
from dsabench.evals.sample_log import read_samples
from dsabench.model.outcome import Scored
from dsabench.model.record import Record
from dsabench.store.journal import FILE_NAME

MARGIN = 0.01


def are_samples(names: tuple[str, str]) -> bool:
    """Whether a name is a file of samples, and so the comparison one of evals."""
    return any(_is_samples(Path(name)) for name in names)


def _is_samples(path: Path) -> bool:
    """Lines of other JSONL files (journals, bench_serving's) do not name a harness."""
    if path.suffix != ".jsonl" or path.name == FILE_NAME or not path.is_file():
        return False
    with path.open("rb") as file:
        return b'"harness_id"' in file.readline()


def run_compare_evals(names: tuple[str, str], margin: float | None, *, gate: bool, as_json: bool) -> int:
    """Print the verdicts; exit code 1 when a gate was asked for and any is not a yes."""
    base, candidate = (_sides(name) for name in names)
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
    return 1 if gate and any(verdict.verdict in ("worse", "inconclusive") for verdict in verdicts) else 0


def _sides(name: str) -> dict[str, Side]:
    """Eval → its samples: of a file, or of every record at or below a place."""
    if _is_samples(Path(name)):
        samples = read_samples(Path(name))
        return {samples[0].harness_id: Side(name, samples[0].harness_id, samples, (str(Path(name).resolve()),))}
    place, hash_, prefix = name.rpartition("#")
    if not hash_ or Path(name).exists():
        place, prefix = name, ""
    found: dict[str, list[tuple[Path, Record]]] = {}
    for path, record in load_records(Path(place)):
        if record.trial.kind == "eval" and isinstance(record.outcome, Scored) and record.id.startswith(prefix):
            found.setdefault(record.trial.workload.harness_id, []).append((path, record))
    if not found:
        raise InputError(f"{name}: no finished eval there")
    return {eval_: _side(name, eval_, records) for eval_, records in found.items()}


def _side(name: str, eval_: str, records: list[tuple[Path, Record]]) -> Side:
    """Runs of one trial are repeats of each other; those of several trials are not one side."""
    trials = sorted({record.id for _, record in records})
    if len(trials) > 1:
        shown = "; ".join(_told_apart(name.partition("#")[0], records)[:4])
        raise InputError(f"{name}: {len(trials)} settings of {eval_}; name one of them: {shown}")
    samples: list[EvalSample] = []
    runs: list[str] = []
    for path, record in records:
        assert isinstance(record.outcome, Scored)
        if record.outcome.samples is not None:
            samples += read_samples(path.parent / record.outcome.samples)
            runs.append(f"{record.id}:{record.environment.fingerprint}:{record.occasion}:{record.boot}")
    if not samples:
        raise InputError(f"{name}: {eval_}: no samples were kept, so nothing can be paired")
    return Side(name, records[0][1].trial.workload.name, tuple(samples), tuple(runs))


def _told_apart(place: str, records: list[tuple[Path, Record]]) -> list[str]:
    """`PLACE#TRIAL (what no other has)` for each trial."""
    settings = {record.id: _settings(record) for _, record in records}
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
