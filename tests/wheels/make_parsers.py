"""Writes what each release's argument parser takes into the package, where `--runtime-version` looks it up.

    python tests/wheels/make_parsers.py FOLDER_WITH_WHEELS

Needs msgspec beside the standard library, and best nothing else (`python -m venv`, `pip install msgspec`): a package
that is installed is used, and one that is missing is stood in for. Only names, choices and the state of a flag are
written, none of the runtime's texts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from wheels import wheels_in

TARGET = Path(__file__).parents[2] / "harness/dsabench/sglang/parsers.json"
_STATES = {"DeprecatedAction": "no-op", "DeprecatedNoOpAction": "no-op"}


def main(folder: Path) -> None:
    wheels = wheels_in(folder)
    versions = [wheel.version for wheel in wheels]
    flags: dict[str, dict[str, dict[str, Any]]] = {}
    variables: dict[str, list[str]] = {}
    for wheel in wheels:
        facts = wheel.ask()
        print(f"{wheel.version}: {len(facts['actions'])} arguments, stood in for {len(facts['stood_in'])} modules")
        for action in facts["actions"]:
            for name in action["names"]:
                if name.startswith("--"):
                    flags.setdefault(name, {})[wheel.version] = form_of(action)
        for name in wheel.variables():
            variables.setdefault(name, []).append(wheel.version)
    table = {
        "wheels": {wheel.version: wheel.sha256 for wheel in wheels},
        "flags": {name: in_ranges(forms, versions) for name, forms in sorted(flags.items())},
        "variables": {
            name: [[span["first"], span["last"]] for span in in_ranges({version: {} for version in seen}, versions)]
            for name, seen in sorted(variables.items())
        },
    }
    TARGET.write_text(text_of(table))


def form_of(action: dict[str, Any]) -> dict[str, Any]:
    """What a flag takes and whether it still does something."""
    kind, nargs = action["action"], action["nargs"]
    takes = "nothing" if nargs == 0 else "values" if nargs in {"+", "*"} else "value"
    state = _STATES.get(kind, "alias" if kind.startswith("Deprecated") else None)
    form = {"dest": action["dest"], "takes": takes, "choices": action["choices"], "state": state}
    return {key: value for key, value in form.items() if value is not None}


def in_ranges(forms: dict[str, dict[str, Any]], versions: list[str]) -> list[dict[str, Any]]:
    """Runs of versions, without a gap, in which the form is the same."""
    spans: list[dict[str, Any]] = []
    before = None
    for version in versions:
        form = forms.get(version)
        if form is not None and form == before:
            spans[-1]["last"] = version
        elif form is not None:
            spans.append({"first": version, "last": version, **form})
        before = form
    return spans


def text_of(table: dict[str, Any]) -> str:
    """JSON with one entry a line, so that a change is read in a diff."""
    sections = []
    for title, entries in table.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in entries.items())
        sections.append(f'"{title}": {{\n{lines}\n}}')
    return "{\n" + ",\n".join(sections) + "\n}\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
