"""Join the journals of several machines into one folder: what is there already is not added again."""

from __future__ import annotations

import filecmp
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dsabench.errors import InputError
from dsabench.model.record import Phase, Record
from dsabench.results.journal import (
    FILE_NAME,
    Journal,
    JournalContents,
    claim_folder,
    parse_journal,
    read_journal,
    stored_samples,
    whole_file,
)
from dsabench.results.remote import RemoteFolder, is_remote

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


def merge_journals(sources: Sequence[str | Path], into: Path) -> Merged:
    """Add the records of the sources, one source after the other, with their samples; a second time adds nothing.

    A record is known by its trial, its boot and its start. Where another one has its occasion it takes the next free one, and where
    another confirmation has its turns its own follow those, so that pairs stay pairs. The sources stay as they are.

    Args:
        sources: folders of results, or their journals; also folders at an fsspec path.
        into: folder of results; made if it is not there.

    Raises:
        InputError: a source that is no journal, or the target itself, or one that names files outside of its folder.
        BusyError: a run uses the target.
        StoreError: the target cannot be written, or a source not be reached; what was added before stays, and the next merge goes on.

    """
    with TemporaryDirectory() as scratch:
        read = [_source_of(source, Path(scratch) / str(number)) for number, source in enumerate(sources)]
        target = Journal(into)
        if any(one.folder.resolve() == into.resolve() for one in read):
            raise InputError(f"{into}: is both a source and the target")
        done = Merged(problems=tuple(problem for one in read for problem in one.contents.problems))
        with claim_folder(into):
            for one in read:
                done = _merge_one(one, target, done)
    return done


@dataclass(frozen=True, slots=True)
class _Source:
    contents: JournalContents
    folder: Path
    """Where its samples are, or are brought to."""
    remote: RemoteFolder | None = None

    def samples(self, name: str) -> Path | None:
        """The file of a record's samples; None where the source does not have it."""
        if self.remote is not None:
            self.remote.fetch_samples(name, self.folder)
        return stored_samples(self.folder, name)


def _source_of(source: str | Path, scratch: Path) -> _Source:
    if is_remote(source):
        remote = RemoteFolder(str(source))
        data = remote.read(FILE_NAME)
        if data is None:
            raise InputError(f"{remote.url}: no journal there ({FILE_NAME})")
        return _Source(parse_journal(data, Path(f"{remote.url}/{FILE_NAME}")), scratch, remote)
    given = Path(source)
    path = given / FILE_NAME if given.is_dir() else given
    if not path.is_file():
        raise InputError(f"{given}: no journal there ({FILE_NAME})")
    return _Source(read_journal(path), path.parent)


def _merge_one(source: _Source, target: Journal, done: Merged) -> Merged:
    records = source.contents.records
    there = target.read().records
    known = {record.measurement for record in there}
    new = [record for record in records if record.measurement not in known]
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
            name = _copy(source, record.samples, target.path.parent, record.boot)
            done = replace(
                done, samples=done.samples + (name is not None), without_samples=done.without_samples + (name is None)
            )
            if name is not None:
                changes["outcome"] = record.outcome.model_copy(update={"samples": name})
        target.append(record.model_copy(update=changes))
        done = replace(done, added=done.added + 1)
    return done


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


def _copy(source: _Source, name: str, target: Path, boot: str) -> str | None:
    """Copy a file of samples, packed or not; returns its name there, None where the source does not have it."""
    given = source.samples(name)
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
