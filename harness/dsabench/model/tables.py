"""Read the YAML tables that are part of the package."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

try:  # The C parser is ten times as fast, but PyYAML may be built without it.
    from yaml import CSafeLoader as _Loader
except ImportError:
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


def read_table(name: str, package: str = __package__) -> dict[str, dict[str, Any]]:
    """Read a YAML file of a package: section → name → fields."""
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    table: dict[str, dict[str, Any]] = yaml.load(text, Loader=_Loader)
    return table
