"""What the runtime's own code said to the cases, as it was written down when each check was taken out of it and run.

`executed.json` has, per rule and version, an outcome:

- `agrees`: the runtime's own code was run on the case and said what the rule says (`said`, per case);
- `silent`: it was run and said nothing, as the rule states; what it then does instead was read in its sources;
- `differs`: it said something else;
- `not executed`: `why` says why not.

`on_gpu.json` has, per rule, what a real server on a real GPU came to: boots that died, the log excerpt of each (beside
the tests of `diagnose`), the legal neighbours that served (in a journal, or in a log excerpt of their own), and which of
the rule's combinations were not run.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from sglang_rule_cases import CASES, Case

GOLDEN = Path(__file__).parent / "golden" / "sglang_rules"
EXECUTED = GOLDEN / "executed.json"
TEXTS = GOLDEN / "texts.json"
ON_GPU = GOLDEN / "on_gpu.json"

UNSEEN = frozenset({"MR01", "SL03", "SL04", "SL11", "SL13", "BE20", "BE26"})
"""Errors of a batch: the runtime resolves the settings without a word, and that is all that can be seen here."""

_HOLES = re.compile(r"\\\{[^}]*\\\}|‹[^›]*›")


def label_of(case: Case) -> str:
    """The rule's id, with the case's number where the rule has several."""
    siblings = [other for other in CASES if other.rule == case.rule]
    return case.rule if len(siblings) == 1 else f"{case.rule}/{siblings.index(case) + 1}"


def same_text(template: str, text: str) -> bool:
    """Whether the runtime's text is the rule's, `{…}` and `‹…›` standing for anything."""
    pattern = _HOLES.sub(".+?", re.escape(" ".join(template.split()))).replace("‹", "").replace("›", "")
    return re.fullmatch(pattern, " ".join(text.split()), re.DOTALL) is not None


@cache
def executed() -> dict[str, Any]:
    """The committed record."""
    read: dict[str, Any] = json.loads(EXECUTED.read_text(encoding="utf-8"))
    return read


@cache
def on_gpu() -> dict[str, dict[str, Any]]:
    """Rule → what it came to on a GPU, written down by hand from the logs."""
    read: dict[str, dict[str, Any]] = json.loads(ON_GPU.read_text(encoding="utf-8"))
    return read


@cache
def texts() -> dict[str, dict[str, str]]:
    """Rule → version → where its words stand in the runtime's sources."""
    read: dict[str, dict[str, str]] = json.loads(TEXTS.read_text(encoding="utf-8"))
    return read
