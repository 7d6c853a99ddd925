"""Finding the runtime's package under a path that the user gave, and its version."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dsabench
from dsabench.errors import InputError
from dsabench.reference.server import tables
from dsabench.sglang.versions import Version, parse_version


@dataclass(frozen=True, slots=True)
class Tree:
    """The runtime's sources: an installed package, an unpacked wheel or a checkout."""

    package: Path
    """The folder `sglang`."""
    version: Version
    project: Path | None
    """pyproject.toml of a checkout, None for an installed package."""
    originals: Mapping[str, bytes | None] = field(default_factory=dict)
    """Contents that stand for those on disk, None where there was no file; paths are relative to the package."""

    def read(self, file: str) -> bytes | None:
        """A file of the package as it was before any patch of ours; None where there is none."""
        if file in self.originals:
            return self.originals[file]
        place = self.package / file
        return place.read_bytes() if place.is_file() else None


def find_tree(given: Path) -> Tree:
    """The tree under a package folder, a site-packages, or a checkout (`python/sglang`).

    Raises:
        InputError: no such folder, no sglang in it, or no version to be found.

    """
    if not given.is_dir():
        raise InputError(f"{given}: no such folder")
    places = (given, given / "sglang", given / "python" / "sglang")
    package = next((place for place in places if (place / "srt" / "server_args.py").is_file()), None)
    if package is None:
        raise InputError(f"{given}: no sglang here: neither srt/server_args.py nor sglang/ nor python/sglang/")
    package = package.resolve()
    project = package.parent / "pyproject.toml"
    return Tree(package, _version_of(package), project if project.is_file() else None)


SHIPPED = tables.SHIPPED.relative_to(Path(dsabench.__file__).parent).as_posix()
"""Folder of the reference runtime's tables, below its package."""


def find_reference_tree(given: Path) -> Tree:
    """The package of the reference runtime: `dsabench` itself, a site-packages, or a checkout (`harness/dsabench`).

    Raises:
        InputError: no such folder, or it has no tables of the reference runtime.

    """
    if not given.is_dir():
        raise InputError(f"{given}: no such folder")
    places = (given, given / "dsabench", given / "harness" / "dsabench")
    package = next((one for one in places if (one / SHIPPED).is_dir() and (one / "__init__.py").is_file()), None)
    version = None if package is None else assigned_version(package / "__init__.py")
    if package is None or version is None:
        raise InputError(f"{given}: no dsabench here, whose reference runtime these tables are for: no {SHIPPED}/")
    return Tree(package.resolve(), parse_version(version), None)


def _version_of(package: Path) -> Version:
    """Of `_version.py`, which wheels carry; a checkout that was never built has only git's tags."""
    file = package / "_version.py"
    if not file.is_file():
        return _tagged(package)
    found = assigned_version(file)
    if found is None:
        raise InputError(f"{file}: names no version")
    try:
        return parse_version(found)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def assigned_version(file: Path) -> str | None:
    """What a module assigns to `__version__`; None where that is no plain text. It is not run."""
    try:
        module = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return None
    for node in module.body:
        names = [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]
        if "__version__" in names and isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return None


def _tagged(package: Path) -> Version:
    git = ["git", "-C", str(package), "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]
    try:
        said = subprocess.run(git, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        said = None
    if said is None or said.returncode:
        raise InputError(f"{package}: no _version.py and no tag of git that says which version this is")
    return parse_version(said.stdout.strip())
