"""Whether a table still describes what is installed: runtime, kernel packages and GPU."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import dsabench
from dsabench.emit.tree import Tree, assigned_version
from dsabench.model.tuned_table import TunedTable


@dataclass(frozen=True, slots=True)
class Installed:
    """What is here. Packages that were not found are absent; so is a GPU."""

    packages: Mapping[str, str]
    device: str | None


def installed_at(tree: Tree | None, device: str | None, driver: str | None) -> Installed:
    """The packages beside a runtime, by their metadata; nothing is imported."""
    found: dict[str, str] = {}
    if tree is not None:
        found = _packages([str(tree.package.parent)])
        found.setdefault("sglang", str(tree.version))
    return Installed(_with_driver(found, driver), device)


def installed_here(device: str | None, driver: str | None) -> Installed:
    """The packages of this interpreter, which runs the reference runtime."""
    return Installed(_with_driver({**_packages(sys.path), "reference": dsabench.__version__}, driver), device)


def _packages(folders: Sequence[str]) -> dict[str, str]:
    """Name → version. The first folder that has a package counts, as in an import."""
    found: dict[str, str] = {}
    for distribution in distributions(path=list(folders)):
        found.setdefault(distribution.name.lower().replace("_", "-"), distribution.version)
    files = (Path(folder, "torch", "version.py") for folder in folders)
    if (torch := next((file for file in files if file.is_file()), None)) is not None:
        # the index's wheels leave the CUDA that they are built for out of their metadata; records have it
        found["torch"] = assigned_version(torch) or found.get("torch", "unknown")
    return found


def _with_driver(found: dict[str, str], driver: str | None) -> dict[str, str]:
    return found if driver is None else {**found, "driver": driver}


def examine(table: TunedTable, installed: Installed) -> list[str]:
    """Why the table no longer matches, one line a reason; empty where it does."""
    reasons = []
    device = installed.device.replace(" ", "_") if installed.device is not None else "CPU"
    if device != table.device:
        reasons.append(f"is for {table.device}, here is {device}")
    for package, measured in sorted(table.evidence.versions.items()):
        here = installed.packages.get(package)
        if here is None:
            reasons.append(f"measured with {package} {measured}, which is not found here")
        elif here != measured:
            reasons.append(f"measured with {package} {measured}, here is {here}")
    if not table.evidence.versions:
        reasons.append("does not say what it was measured with")
    return reasons
