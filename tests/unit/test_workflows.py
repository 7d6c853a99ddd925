"""The GitHub workflows and the action are well formed: what actionlint finds and a machine without it would miss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = [
    ROOT / "action.yml",
    *sorted((ROOT / ".github/workflows").glob("*.yml")),
    *sorted((ROOT / "docs/workflows").glob("*.yml")),
]
KEYS = {"type", "required", "default", "description", "options"}


def input_groups(loaded: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    """The inputs of an action, or of each trigger of a workflow. YAML 1.1 reads the key `on` as True."""
    triggers = loaded.get(True)
    for holder in [loaded, *(triggers.values() if isinstance(triggers, dict) else ())]:
        if isinstance(holder, dict) and "inputs" in holder:
            yield holder["inputs"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_inputs_are_declared_and_hold_only_known_keys(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    groups = list(input_groups(yaml.safe_load(text)))
    for inputs in groups:
        for name, about in inputs.items():
            assert set(about or {}) <= KEYS, f"{name}: a comma outside quotes?"
    used = set(re.findall(r"\$\{\{\s*(?:fromJSON\()?inputs\.([\w-]+)", text))
    for inputs in groups:
        assert used <= set(inputs)
    assert not (used and not groups)


def test_there_is_an_action_and_there_are_workflows() -> None:
    assert len(FILES) >= 5
