"""What is rendered now was shown to the wheels' own parsers: `tests/wheels/check_flags.py` wrote down what they took."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from dsabench.sglang.accepts import from_table
from dsabench.sglang.versions import parse_version

WHEELS = Path(__file__).parents[2] / "wheels"
SHOWN = json.loads((WHEELS / "rendered_flags.json").read_text())

_spec = importlib.util.spec_from_file_location("wheel_command_lines", WHEELS / "command_lines.py")
assert _spec is not None
assert _spec.loader is not None
lines = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(lines)


def test_the_versions_are_those_that_must_be_shown() -> None:
    assert tuple(SHOWN) == lines.CHECKED == ("0.5.9", "0.5.10", "0.5.12", "0.5.16", "0.5.23")


@pytest.mark.parametrize("version", lines.CHECKED)
def test_every_flag_of_recipes_and_knobs_was_taken_by_the_wheels_parser(version: str) -> None:
    accepted = from_table(parse_version(version))
    for label, words in lines.command_lines(accepted):
        for flag, value in zip(words, [*words[1:], "--"], strict=True):
            if not flag.startswith("--"):
                continue
            assert flag in SHOWN[version]["flags"], f"{label}: run tests/wheels/check_flags.py"
            form = accepted.flags[flag]
            assert form.state != "no-op", label
            assert (form.takes == "nothing") == value.startswith("--"), label
            assert not form.choices or value in form.choices, label
