"""Which rules hold in a release that nobody read: those whose words its sources still have."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from dsabench.sglang.rules.table import RULES, Rule

_READ = ("srt", "kernels", "jit_kernel")
_HOLE = re.compile(r"\{[^}]*\}|‹[^›]*›")
_JOINED = re.compile(r"[\"']\s*\n\s*[rf]*[\"']")
"""Between two halves of a text in the sources."""
_SHORTEST = 16
"""Of a piece of text that is looked for, in characters."""


@lru_cache(maxsize=4)
def rules_gone(tree: Path) -> frozenset[str]:
    """Ids of rules whose words an unpacked wheel does not have. Rules that quote nothing stay."""
    files = [file for part in _READ for file in (tree / "sglang" / part).rglob("*.py")]
    sources = "\n".join(_JOINED.sub("", file.read_text(encoding="utf-8", errors="ignore")) for file in files)
    return frozenset(rule.id for rule in RULES if (piece := _quoted(rule)) and piece not in sources)


def _quoted(rule: Rule) -> str | None:
    """The longest text between two values in what the newest version says; None where it says too little."""
    words = rule.words[-1]
    if rule.probe is not None:
        return rule.probe
    if words.kind in {"silent", "document"}:
        return None
    longest = max((piece.strip() for piece in _HOLE.split(words.text)), key=len, default="")
    return longest if len(longest) >= _SHORTEST else None
