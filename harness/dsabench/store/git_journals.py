"""Journals and what lies beside them as they stand in a commit, read without touching the working tree."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from dsabench.errors import InputError
from dsabench.store.journal import FILE_NAME, Reading, parse_journal

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or journal of a commit: `REF`, which means its `results`, or `REF:PATH`."""

    commit: str
    path: str

    def __str__(self) -> str:
        return f"{self.commit[:12]}:{self.path}"


def find_commit(name: str, folder: Path | None = None) -> Place | None:
    """What the name means in the repository around a folder (None: the working directory); None where it is no commit."""
    ref, colon, path = name.partition(":")
    if not ref or ref.startswith("-") or (colon and not path):
        return None
    found = _git(("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"), folder)
    return None if found is None else Place(found.decode().strip(), path.rstrip("/") or "results")


def read_at(place: Place, folder: Path | None = None) -> list[tuple[Path, Reading]]:
    """Every journal at or below the place, with its path in the commit.

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
    """One file of a commit; its name counts from the repository's root.

    Raises:
        InputError: the commit has no such file.

    """
    data = _git(("cat-file", "blob", f"{commit}:{name}"), folder)
    if data is None:
        raise InputError(f"{commit[:12]}:{name}: no such file in this commit")
    return data


def _git(words: tuple[str, ...], folder: Path | None) -> bytes | None:
    """What git prints; None where it refuses, or there is no git."""
    place = () if folder is None else ("-C", str(folder))
    try:
        done = subprocess.run(("git", *place, *words), capture_output=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
