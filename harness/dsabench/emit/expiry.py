"""Whether a table still describes what is installed: runtime, kernel packages and GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distributions

from dsabench.emit.tree import Tree
from dsabench.model.tuned_table import TunedTable


@dataclass(frozen=True, slots=True)
class Installed:
    """What is here. Packages that were not found are absent; so is a GPU."""

    packages: Mapping[str, str]
    device: str | None


def installed_at(tree: Tree | None, device: str | None, driver: str | None) -> Installed:
    """The packages beside a runtime, by their metadata; nothing is imported."""
    found = {} if driver is None else {"driver": driver}
    if tree is not None:
        for distribution in distributions(path=[str(tree.package.parent)]):
            found[distribution.name.lower().replace("_", "-")] = distribution.version
        found.setdefault("sglang", str(tree.version))
    return Installed(found, device)


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
