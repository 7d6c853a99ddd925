"""A record, where it lies and where its page will be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsabench.model.environment import Environment
from dsabench.model.record import Failed, Measured, Metric, Record, Scored, Trial
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.workload import Workload


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the site."""

    record: Record
    journal: Path
    page: str
    """Relative to the site's folder."""

    @property
    def metrics(self) -> dict[str, Metric]:
        """Empty where it failed."""
        outcome = self.record.outcome
        return {} if isinstance(outcome, Failed) else dict(outcome.metrics)

    def value(self, metric: str) -> float | None:
        """One figure; None where this record lacks it."""
        outcome = self.record.outcome
        found = None if isinstance(outcome, Failed) else outcome.metrics.get(metric)
        return None if found is None else found.value

    @property
    def spec(self) -> RuntimeSpec:
        """What was served."""
        return self.record.trial.runtime

    @property
    def workload(self) -> Workload:
        """What was asked; only of load tests."""
        trial = self.record.trial
        assert isinstance(trial, Trial)
        return trial.workload

    @property
    def is_load_test(self) -> bool:
        """Whether it is no eval."""
        return isinstance(self.record.trial, Trial)

    @property
    def failure(self) -> Failed | None:
        """How it failed; None where it did not."""
        return self.record.outcome if isinstance(self.record.outcome, Failed) else None

    @property
    def result(self) -> Measured | Scored | None:
        """What came out; None where it failed."""
        return None if isinstance(self.record.outcome, Failed) else self.record.outcome


def make_entries(found: Sequence[tuple[Path, Record]]) -> list[Entry]:
    """Entries with pages of their own; a record that two journals hold counts once.

    Two folders that were measured apart may use the same key for different boots; the boot then stands in the page's name.
    """
    entries: dict[str, Entry] = {}
    for journal, record in found:
        page = f"records/{record.id[:16]}-{record.environment.fingerprint[:8]}-{record.occasion}.html"
        if page in entries and entries[page].record.boot != record.boot:
            page = page.replace(".html", f"-{record.boot[:8]}.html")
        entries.setdefault(page, Entry(record, journal, page))
    return list(entries.values())


def machine_of(environment: Environment) -> str:
    """`8 × NVIDIA H200`, or the CPU where there is no accelerator."""
    gpus = environment.hardware.gpus
    if not gpus:
        return f"{environment.hardware.cpu}, {environment.hardware.cpu_cores} cores"
    return gpus[0].name if len(gpus) == 1 else f"{len(gpus)} × {gpus[0].name}"


def label_of(spec: RuntimeSpec, default: RuntimeSpec, silent: Iterable[str] = ()) -> str:
    """What differs from the default as `knob=value …`; `default` where nothing does."""
    left_out = set(silent)
    differing = {name: value for name, value in spec.knobs.items() if default.knobs.get(name) != value}
    telling = {name: value for name, value in differing.items() if name not in left_out} or differing
    changed = [f"{name}={value}" for name, value in telling.items()]
    missing = [f"{name} unset" for name in default.knobs if name not in spec.knobs]
    env = [f"{name}={value}" for name, value in spec.env.items() if default.env.get(name) != value]
    return " ".join([*changed, *missing, *env]) or ("default" if spec == default else "another model or version")
