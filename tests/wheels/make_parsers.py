"""Writes what each release's argument parser takes into the package, where `--runtime-version` looks it up.

    PYTHONPATH=harness:kernels python tests/wheels/make_parsers.py [VERSION …]

Reads the releases that were added (`dsabench runtime add sglang==VERSION`), or those that are named. Only names, choices
and the state of a flag are written, none of the runtime's texts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dsabench.sglang.resolve.releases import added_releases

TARGET = Path(__file__).parents[2] / "harness/dsabench/sglang/parsers.json"


def main(wanted: list[str]) -> None:
    releases = [release for release in added_releases() if not wanted or release.version in wanted]
    versions = [release.version for release in releases]
    flags: dict[str, dict[str, dict[str, Any]]] = {}
    variables: dict[str, list[str]] = {}
    for release in releases:
        facts = release.facts
        print(f"{release.version}: {len(facts['flags'])} flags")
        for name, form in facts["flags"].items():
            flags.setdefault(name, {})[release.version] = {
                key: value for key, value in form.items() if value is not None
            }
        for name in facts["variables"]:
            variables.setdefault(name, []).append(release.version)
    table = {
        "wheels": {release.version: release.sha256 for release in releases},
        "flags": {name: in_ranges(forms, versions) for name, forms in sorted(flags.items())},
        "variables": {
            name: [[span["first"], span["last"]] for span in in_ranges({version: {} for version in seen}, versions)]
            for name, seen in sorted(variables.items())
        },
    }
    TARGET.write_text(text_of(table))


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
    main(sys.argv[1:])
