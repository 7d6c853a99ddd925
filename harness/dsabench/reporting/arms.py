"""Two places of results held against each other folder by folder.

Folders may hold the same trials in the same environment and still differ: a patched runtime, a table laid beside it. Their
boots are no repeats of each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.model.record import Record
from dsabench.model.verdict import Verdict
from dsabench.reporting.comparison import ComparedPair, ComparedSide, contrasts, judged
from dsabench.stats.compare import BootComparison


@dataclass(frozen=True, slots=True)
class Place:
    """What the user named, and the records in each folder below it."""

    name: str
    folders: Mapping[str, tuple[Record, ...]]

    @property
    def records(self) -> tuple[Record, ...]:
        """Of all folders."""
        return tuple(record for records in self.folders.values() for record in records)


def without_shared(base: Place, candidate: Place) -> Place:
    """The candidate without the records that are the base's as well: what was measured since, which may be nothing."""
    known = {(record.key, record.boot) for record in base.records}
    new = {
        folder: kept
        for folder, records in candidate.folders.items()
        if (kept := tuple(record for record in records if (record.key, record.boot) not in known))
    }
    return Place(candidate.name, new)


def compare_places(
    base: Place, candidate: Place, metrics: Sequence[str], *, across: bool = False
) -> tuple[Verdict, ...]:
    """Verdicts as of `compare_sides`, one family over all folders.

    Raises:
        InputError: nothing to compare, or no environment is on both sides.

    """
    asked: list[tuple[ComparedPair, BootComparison]] = []
    names: list[str | None] = []
    trouble: InputError | None = None
    for folder, left, right in _arms(base, candidate):
        try:
            found = contrasts(left, right, metrics, across=across)
        except InputError as error:  # a folder that lacks a counterpart is left out where others have one
            trouble = trouble or error
            continue
        asked += found
        names += [folder] * len(found)
    if trouble is not None and not asked:
        raise trouble
    verdicts = judged(asked)
    return tuple(v.model_copy(update={"arm": name}) for v, name in zip(verdicts, names, strict=True))


def _arms(base: Place, candidate: Place) -> list[tuple[str | None, ComparedSide, ComparedSide]]:
    """Folders that both have; what only one has against what only the other has; or all against all."""
    shared = [folder for folder in base.folders if folder in candidate.folders]
    if not shared or len(base.folders) == len(candidate.folders) == 1:
        return [(None, ComparedSide(base.name, base.records), ComparedSide(candidate.name, candidate.records))]
    arms: list[tuple[str | None, ComparedSide, ComparedSide]] = [
        (folder, ComparedSide(base.name, base.folders[folder]), ComparedSide(candidate.name, candidate.folders[folder]))
        for folder in shared
    ]
    rests = [
        ComparedSide(
            place.name, tuple(r for folder, records in place.folders.items() if folder not in shared for r in records)
        )
        for place in (base, candidate)
    ]
    if all(rest.records for rest in rests):
        arms.append((None, rests[0], rests[1]))
    return arms
