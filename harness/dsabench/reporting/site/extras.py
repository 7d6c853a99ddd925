"""What stands beside load tests: evals with published scores, kernel runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsabench.config.load import load_eval
from dsabench.errors import InputError
from dsabench.evals.published import beside_record
from dsabench.evals.sample_log import read_samples
from dsabench.evals.summarise import tally
from dsabench.kernelbench.records import FILE_NAME as KERNELS
from dsabench.kernelbench.records import KernelMeasurement
from dsabench.kernelbench.records import read as read_kernels
from dsabench.model.record import EvalTrial, Metric, Record, Scored
from dsabench.reporting import eval_page, kernel_page
from dsabench.reporting.site.entry import Entry, machine_of
from dsabench.results.journal import FILE_NAME as JOURNAL


@dataclass(frozen=True, slots=True)
class EvalRow:
    """A finished eval."""

    entry: Entry
    label: str
    score: Metric
    beside: tuple[str, ...]
    """A line for each published score of the run most like ours."""
    samples: str | None
    """Page of the answers."""


def eval_rows(entries: Sequence[Entry], folder: Path) -> list[EvalRow]:
    """Finished evals, the latest first; the pages of their answers are written to `evals/` of the folder."""
    rows = []
    for entry in sorted(entries, key=lambda one: one.record.started_at, reverse=True):
        trial, outcome = entry.record.trial, entry.record.outcome
        if not isinstance(trial, EvalTrial) or not isinstance(outcome, Scored) or "score" not in outcome.metrics:
            continue
        label = " ".join(f"{name}={value}" for name, value in trial.runtime.knobs.items())
        samples = _write_answers(entry, folder)
        rows.append(
            EvalRow(entry, label, outcome.metrics["score"], _published(entry.record, trial.workload.name), samples)
        )
    return rows


def _published(record: Record, name: str) -> tuple[str, ...]:
    try:
        spec = load_eval(name)
    except InputError:
        return ()
    return tuple(one.line() for one in beside_record(record, spec))


def _write_answers(entry: Entry, folder: Path) -> str | None:
    result, trial = entry.result, entry.record.trial
    assert isinstance(trial, EvalTrial)
    if result is None or result.samples is None:
        return None
    try:
        samples = read_samples(entry.journal.parent / result.samples)
    except InputError:
        return None
    if not samples:
        return None
    page = f"evals/{entry.page.removeprefix('records/')}"
    served = eval_page.Asked(trial.runtime.model, trial.runtime.base_url or entry.record.study, entry.record.started_at)
    eval_page.write_page(folder / page, trial.workload, tally(samples), served)
    return page


def has_only_kernels(place: Path) -> bool:
    """Whether kernel times lie below a folder, and no journal of trials."""
    return place.is_dir() and any(place.rglob(KERNELS)) and not any(place.rglob(JOURNAL))


@dataclass(frozen=True, slots=True)
class KernelRun:
    """A folder with kernel times."""

    folder: Path
    page: str
    points: int
    operators: int
    machine: str


def kernel_runs(places: Sequence[Path], folder: Path) -> list[KernelRun]:
    """Every folder with kernel times; their pages are written."""
    found: list[KernelRun] = []
    for journal in sorted({file for place in places if place.is_dir() for file in place.rglob(KERNELS)}):
        latest: dict[object, KernelMeasurement] = {m.point: m for m in read_kernels(journal.parent)}
        if not any(m.status == "ok" and m.median_us for m in latest.values()):
            continue
        name = f"kernels/{len(found) + 1}-{journal.parent.name}"
        kernel_page.write_page(list(latest.values()), folder / name, home="../../index.html")
        timed = [m for m in latest.values() if m.status == "ok" and m.median_us]
        machines = ", ".join(sorted({machine_of(m.environment) for m in timed}))
        operators = len({m.operator for m in timed})
        found.append(KernelRun(journal.parent, f"{name}/index.html", len(timed), operators, machines))
    return found
