"""What a name of results means: a folder or journal, or a commit, with `#TRIAL` behind it or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsabench.store.git_journals import Place, find_commit


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """Where to look, and for which trials."""

    where: Path | Place
    """On disk, or in a commit."""
    prefix: str
    """What the ids of the trials begin with."""


def named_place(name: str) -> NamedPlace:
    """What lies on disk under the whole name or under a part of it comes before a commit."""
    place, hash_, prefix = name.rpartition("#")
    if not hash_ or Path(name).exists():
        place, prefix = name, ""
    path = Path(place)
    return NamedPlace(path if path.exists() else find_commit(place) or path, prefix)
