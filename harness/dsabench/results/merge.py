"""Join the journals of several machines into one folder: what is there already is not added again."""

from __future__ import annotations

import filecmp
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from dsabench.errors import InputError
from dsabench.model.record import Phase, Record
from dsabench.results.journal import FILE_NAME, Journal, claim_folder, read_journal, stored_samples, whole_file

_Measurement = tuple[str, str, Phase, datetime]
_Series = tuple[str, int, Phase]
"""Study, round and phase: one confirmation or ablation, whose turns are counted from 0."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did."""

    added: int = 0
    known: int = 0
    """Records that were there already."""
    samples: int = 0
    """Files that were copied."""
    without_samples: int = 0
    """Added records whose samples their own folder does not have."""
    problems: tuple[str, ...] = ()
    """Damaged lines, which stay behind."""


def merge_journals(sources: Sequence[Path], into: Path) -> Merged:
    """Add the records of the sources, one source after the other, with their samples; a second time adds nothing.

    A record is known by its trial, its boot and its start. Where another one has its occasion it takes the next free one, and where
    another confirmation has its turns its own follow those, so that pairs stay pairs. The sources stay as they are.

    Args:
        sources: folders of results, or their journals.
        into: folder of results; made if it is not there.

    Raises:
        InputError: a source that is no journal, or the target itself, or one that names files outside of its folder.
        BusyError: a run uses the target.
        StoreError: the target cannot be written; what was added before stays, and the next merge goes on.

    """
    journals = [_journal_of(source) for source in sources]
    target = Journal(into)
    if any(one.resolve() == target.path.resolve() for one in journals):
        raise InputError(f"{into}: is both a source and the target")
    read = [read_journal(one) for one in journals]
    done = Merged(problems=tuple(problem for one in read for problem in one.problems))
    with claim_folder(into):
        for place, contents in zip(journals, read, strict=True):
            done = _merge_one(place.parent, contents.records, target, done)
    return done


def _journal_of(source: Path) -> Path:
    path = source / FILE_NAME if source.is_dir() else source
    if not path.is_file():
        raise InputError(f"{source}: no journal there ({FILE_NAME})")
    return path


def _merge_one(folder: Path, records: Sequence[Record], target: Journal, done: Merged) -> Merged:
    there = target.read().records
    known = {_measurement(record) for record in there}
    new = [record for record in records if _measurement(record) not in known]
    done = replace(done, known=done.known + len(records) - len(new))
    taken, moved = defaultdict[tuple[str, str], set[int]](set), set[tuple[str, str]]()
    for record in there:
        taken[record.key[:2]].add(record.occasion)
    shifts = _shifts(there, new)
    for record in sorted(new, key=lambda one: one.occasion):
        of_trial = record.key[:2]
        # Once one of a trial has moved, those behind it do too: a retry stays behind the fault that it is the retry of.
        if record.occasion in taken[of_trial]:
            moved.add(of_trial)
        occasion = max(taken[of_trial]) + 1 if of_trial in moved else record.occasion
        taken[of_trial].add(occasion)
        changes: dict[str, object] = {"occasion": occasion}
        if record.turn is not None:
            changes["turn"] = record.turn + shifts[record.study, record.round, record.phase]
        if record.samples is not None:
            name = _copy(folder, record.samples, target.path.parent, record.boot)
            done = replace(
                done, samples=done.samples + (name is not None), without_samples=done.without_samples + (name is None)
            )
            if name is not None:
                changes["outcome"] = record.outcome.model_copy(update={"samples": name})
        target.append(record.model_copy(update=changes))
        done = replace(done, added=done.added + 1)
    return done


def _measurement(record: Record) -> _Measurement:
    return record.id, record.boot, record.phase, record.started_at


def _shifts(there: Iterable[Record], new: Sequence[Record]) -> Mapping[_Series, int]:
    """By how much the turns of each series of boots move: none where they are free, else behind those that are there."""
    taken, found = _turns(there), defaultdict[_Series, int](int)
    for series, turns in _turns(new).items():
        if turns & taken.get(series, set()):
            found[series] = max(number for _, number in taken[series]) + 1
    return found


def _turns(records: Iterable[Record]) -> dict[_Series, set[tuple[str, int]]]:
    """Series → its (trial, turn)."""
    found = defaultdict[_Series, set[tuple[str, int]]](set)
    for record in records:
        if record.turn is not None:
            found[record.study, record.round, record.phase].add((record.id, record.turn))
    return found


def _copy(source: Path, name: str, target: Path, boot: str) -> str | None:
    """Copy a file of samples, packed or not; returns its name there, None where the source does not have it."""
    given = stored_samples(source, name)
    if given is None:
        return None
    end = given.name.removeprefix(Path(name).name)
    free = _free_name(given, name, target, boot, end)
    place = target / (free + end)
    if not place.is_file():
        with whole_file(place, "the samples were not copied") as copy, given.open("rb") as samples:
            shutil.copyfileobj(samples, copy)
    return free


def _free_name(given: Path, name: str, target: Path, boot: str, end: str) -> str:
    """The same name, unless other samples have it: then with the boot's first characters."""
    there = target / (name + end)
    if not there.exists() or filecmp.cmp(given, there, shallow=False):
        return name
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}-{boot[:8]}{dot}{suffix}"
