"""SGLang releases that were added to be asked: unpacked wheels without their dependencies."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from dsabench import rooms
from dsabench.errors import InputError

FACTS = "release.json"
"""Version, checksum and packages; written last."""
FLAGS = "flags.json"
"""The parser's flags, and the variables that the sources name."""


@dataclass(frozen=True, slots=True)
class AddedRelease:
    """One release."""

    version: str
    """As the wheel says it, post releases included."""
    sha256: str
    """Of the wheel."""
    packages: str | None
    """Folder below `packages/` with transformers as the wheel pins it; None if the wheel asks for none."""
    folder: Path
    """Has `tree/`, the wheel's files without its shared libraries."""

    @property
    def tree(self) -> Path:
        """What stands in front of `sys.path`."""
        return self.folder / "tree"

    @property
    def paths(self) -> tuple[Path, ...]:
        """Folders behind `tree` on `sys.path`."""
        return () if self.packages is None else (runtimes_folder() / "packages" / self.packages,)

    @property
    def facts(self) -> Mapping[str, Any]:
        """`flags` and `variables`, as `tell_facts.py` has them."""
        found: Mapping[str, Any] = json.loads((self.folder / FLAGS).read_text(encoding="utf-8"))
        return found

    @property
    def size(self) -> int:
        """Bytes of its folder, packages not counted."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())


def added_releases() -> tuple[AddedRelease, ...]:
    """All of them, oldest first."""
    found = [read_release(file.parent) for file in runtimes_folder().glob(f"sglang-*/{FACTS}")]
    return tuple(sorted(filter(None, found), key=lambda release: Version(release.version)))


def added_release(version: str) -> AddedRelease | None:
    """The release of that version; None if it was not added."""
    return read_release(folder_of(version.removeprefix("v")))


def remove_release(version: str) -> None:
    """Remove a release, and the packages that no other one needs.

    Raises:
        InputError: it was not added.

    """
    found = added_release(version)
    if found is None:
        known = ", ".join(one.version for one in added_releases()) or "none"
        raise InputError(f"sglang {version} was not added (added: {known})")
    shutil.rmtree(found.folder)
    needed = {one.packages for one in added_releases()}
    if found.packages is not None and found.packages not in needed:
        shutil.rmtree(runtimes_folder() / "packages" / found.packages, ignore_errors=True)


def runtimes_folder() -> Path:
    """Where they are kept."""
    return rooms.cache_folder() / "runtimes"


def folder_of(version: str) -> Path:
    """Where that release is kept, if it is."""
    return runtimes_folder() / f"sglang-{re.sub(r'[^A-Za-z0-9._+-]', '_', version)}"


def read_release(folder: Path) -> AddedRelease | None:
    """What stands there; None where nothing does, or not all of it."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        return AddedRelease(facts["version"], facts["sha256"], facts["packages"], folder)
    except (OSError, ValueError, KeyError, TypeError):
        return None
