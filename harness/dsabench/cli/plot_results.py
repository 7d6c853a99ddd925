"""From a record or a file of samples to a picture."""

from __future__ import annotations

from pathlib import Path

from dsabench.cli.show_results import setting_of
from dsabench.errors import InputError
from dsabench.model.record import Failed
from dsabench.reporting.timeline import draw_timeline
from dsabench.results.places import find_record
from dsabench.results.samples import read_samples


def plot_samples(what: str, output: Path, results: Path) -> None:
    """Draw and say where the pictures are.

    Raises:
        InputError: no such record or file, or nothing was measured there.

    """
    if what.endswith(".parquet"):
        file = Path(what)
        written = draw_timeline(read_samples(file), output, file.name)
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
        written = draw_timeline(samples, output, title, workload)
    for path in written:
        print(path)
