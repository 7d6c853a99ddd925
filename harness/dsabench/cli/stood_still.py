"""Which of the compared measurements a standstill of the server is in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dsabench.errors import InputError
from dsabench.load.standstill import standstill_cautions, tells_standstill
from dsabench.model.record import Measured, Record
from dsabench.store.samples import read_samples


def stood_still(found: Iterable[tuple[Path, Record]]) -> tuple[str, ...]:
    """One line for each, from its warnings, and of older records, which were not asked, from their samples."""
    lines = []
    for journal, record in found:
        said = _of_record(journal, record)
        if said is not None:
            lines.append(f"{record.id[:10]}:{record.occasion} ({record.trial.workload.name}): {said}")
    return tuple(lines)


def _of_record(journal: Path, record: Record) -> str | None:
    outcome = record.outcome
    if not isinstance(outcome, Measured):
        return None
    if (told := next(filter(tells_standstill, outcome.warnings), None)) is not None:
        return told
    if outcome.samples is None:
        return None
    try:
        samples = read_samples(journal.parent / outcome.samples)
    except InputError:
        return None  # a journal can be read without its samples, out of a commit for one
    lag = outcome.metrics.get("client.lag_ms.max")
    return next(standstill_cautions(samples, 0.0 if lag is None else lag.value), None)
