"""What a name of results means: a folder, a journal or a commit, each with `#TRIAL` if wanted."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsabench.errors import InputError
from dsabench.model.record import Record, RecordKey
from dsabench.results.journal import FILE_NAME, JournalContents, newest_records, parse_journal, read_journal


@dataclass(frozen=True, slots=True)
class ResultsPlace:
    """Where to look for records, and for which trials."""

    where: Path | CommitPath
    """On disk, or in a commit."""
    prefix: str
    """Prefix of the trials' ids."""


def find_place(name: str) -> ResultsPlace:
    """Resolve a name. Something on disk takes precedence over a commit."""
    place, hash_, prefix = name.rpartition("#")
    if not hash_ or Path(name).exists():
        place, prefix = name, ""
    path = Path(place)
    return ResultsPlace(path if path.exists() else find_commit(place) or path, prefix)


_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class CommitPath:
    """A folder or journal in a commit: `REF:PATH`, or `REF` for its `results` folder."""

    commit: str
    path: str

    def __str__(self) -> str:
        return f"{self.commit[:12]}:{self.path}"


def find_commit(name: str, folder: Path | None = None) -> CommitPath | None:
    """The commit that the name means in the repository around `folder` (None: the working directory); None if it is
    none.
    """
    ref, colon, path = name.partition(":")
    if not ref or ref.startswith("-") or (colon and not path):
        return None
    found = _git(("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"), folder)
    return None if found is None else CommitPath(found.decode().strip(), path.rstrip("/") or "results")


def read_at(place: CommitPath, folder: Path | None = None) -> list[tuple[Path, JournalContents]]:
    """Read every journal at or below the place, each with its path in the commit.

    Raises:
        InputError: there is none.

    """
    listed = _git(("ls-tree", "-r", "-z", "--full-tree", "--name-only", place.commit, "--", place.path), folder)
    names = [] if listed is None else [name for name in listed.decode().split("\0") if name]
    journals = [name for name in names if name == place.path or name.rpartition("/")[2] == FILE_NAME]
    if not journals:
        raise InputError(f"{place}: no {FILE_NAME} at or below {place.path} in this commit")
    found = []
    for name in sorted(journals):
        data = read_file_at(place.commit, name, folder)
        found.append((Path(name), parse_journal(data, Path(f"{place.commit[:12]}:{name}"))))
    return found


def read_file_at(commit: str, name: str, folder: Path | None = None) -> bytes:
    """Read one file of a commit. Its name is relative to the root of the repository.

    Raises:
        InputError: the commit has no such file.

    """
    data = _git(("cat-file", "blob", f"{commit}:{name}"), folder)
    if data is None:
        raise InputError(f"{commit[:12]}:{name}: no such file in this commit")
    return data


def read_at_ref(ref: str, file: Path) -> bytes:
    """A file of the working tree as it is in a commit.

    Raises:
        InputError: there is no such commit, or the commit has no such file.

    """
    folder = file.resolve().parent
    top, commit = _git(("rev-parse", "--show-toplevel"), folder), find_commit(ref, folder)
    if top is None or commit is None:
        raise InputError(f"{ref}: no such commit of the repository that has {file}")
    return read_file_at(commit.commit, file.resolve().relative_to(top.decode().strip()).as_posix(), folder)


def _git(words: tuple[str, ...], folder: Path | None) -> bytes | None:
    """The output of git; None if git fails or is not installed."""
    place = () if folder is None else ("-C", str(folder))
    try:
        done = subprocess.run(("git", *place, *words), capture_output=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def find_journals(folder: Path) -> list[Path]:
    """Every journal at or below a folder, sorted. A journal's own path gives itself.

    Raises:
        InputError: there is no such folder, no journal in it, or the file holds no record.

    """
    if folder.is_file():
        if not _holds_a_record(folder):
            raise InputError(
                f"{folder}: no record in it, and no samples of an eval: their lines have harness_id, "
                "those of lm-evaluation-harness doc_id and filtered_resps"
            )
        return [folder]
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of results")
    found = sorted(folder.rglob(FILE_NAME))
    if not found:
        raise InputError(f"{folder}: no {FILE_NAME} at or below it")
    return found


def own_journals(folder: Path) -> list[Path]:
    """The journals at or below a folder that git does not track; all of them if it tracks every one.

    A checkout contains committed evidence, in which the user's own records would be hard to find.

    Raises:
        InputError: as `find_journals` raises.

    """
    found = find_journals(folder)
    listed = _git(("ls-files", "-z", "--full-name", "--", *(str(path.absolute()) for path in found)), found[0].parent)
    top = _git(("rev-parse", "--show-toplevel"), found[0].parent)
    if not listed or top is None:
        return found
    root = Path(top.decode().strip())
    tracked = {(root / name).resolve() for name in listed.decode().split("\0") if name}
    return [path for path in found if path.resolve() not in tracked] or found


LATEST = "latest"
"""The name of the newest record."""


def find_record(folder: Path, wanted: str) -> tuple[Path, Record]:
    """The record that `latest` or `ID-PREFIX[:OCCASION]` names. Own records take precedence over committed ones.

    Raises:
        InputError: there is none, or more than one.

    """
    own = own_journals(folder)
    if wanted == LATEST:
        newest = [(path, record) for path in own if (record := _newest(path)) is not None]
        if not newest:
            raise InputError(f"{folder}: no record in it")
        return max(newest, key=lambda one: one[1].started_at)
    prefix, _, occasion = wanted.partition(":")
    if occasion and not occasion.isdigit():
        raise InputError(f"{wanted}: the occasion after ':' must be a number")
    matches = _matching(own, prefix, occasion) or _matching(find_journals(folder), prefix, occasion)
    if not matches:
        raise InputError(f"{wanted}: no such record in {folder} (dsabench results list --results {folder} --all)")
    if len(matches) > 1:
        raise InputError(f"{wanted} means {len(matches)} records: {_told_apart(matches)}")
    return matches[0]


def _newest(journal: Path) -> Record | None:
    return next((one for one in newest_records(journal) if isinstance(one, Record)), None)


def _matching(journals: Sequence[Path], prefix: str, occasion: str) -> list[tuple[Path, Record]]:
    return [
        (path, record)
        for path in journals
        for record in read_journal(path).records
        if record.id.startswith(prefix) and (not occasion or record.occasion == int(occasion))
    ]


def _told_apart(matches: Sequence[tuple[Path, Record]]) -> str:
    """Unambiguous names of the first six matches, with --results where only the folder differs."""
    several = len({path for path, _ in matches}) > 1
    names = [
        f"{record.id[:10]}:{record.occasion}" + (f" --results {path.parent}" if several else "")
        for path, record in matches[:6]
    ]
    return ", ".join(names) + (" …" if len(matches) > 6 else "")


def _holds_a_record(file: Path) -> bool:
    """Whether a file that the user named is a journal at all."""
    try:
        with file.open("rb") as lines:
            return any(map(_has_key, lines))
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error


def _has_key(line: bytes) -> bool:
    """Whether a line has the fields of a record key, even if only a newer dsabench can read the record."""
    try:
        data = json.loads(line)
        RecordKey(str(data["id"]), str(data["environment"]["fingerprint"]), int(data["occasion"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return True
