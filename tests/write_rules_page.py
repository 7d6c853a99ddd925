"""Writes docs/sglang-rules.md from the rules and from what was executed.

    PYTHONPATH=harness:kernels:tests python tests/write_rules_page.py

A test holds the page against the rules, so that neither changes without the other.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dsabench.model.hardware import HARDWARE
from dsabench.sglang.rules.table import FAMILIES, RULES, Rule
from sglang_rule_golden import UNSEEN, executed, on_gpu, texts

PAGE = Path(__file__).parent.parent / "docs" / "sglang-rules.md"

_HEAD = """# The rules for SGLang

What SGLang's own argument code [cannot say](launch.md#ask-sglang-itself) before a boot: it is checked when the weights are loaded or at the first batch, or
by nobody. For the versions 0.5.9 to 0.5.23. `dsabench launch` and `dsabench sweep` ask these rules before anything is started. Written by
`tests/write_rules_page.py`.

- **error**: it does not run, or computes garbage. `launch` ends with exit code 2; a sweep records the point as refused.
- **overwritten**: it runs with something else than asked, mostly without a word.
- **advisory**: it runs as asked, outside what its authors tested, or at a price worth knowing.

`…` stands for a value. The last column says how the rule is known:

- **executed**: that version's own code was run on the rule's case, on a machine without a GPU, and said these words.
  A check in the middle of code that needs a GPU was taken out as it stands and run with the values that it reads.
- **executed, silent**: it was run and says nothing, as the rule states; what it does instead stands in its sources.
- **on a GPU**: a server of that version died of it on a GPU; [below](#died-on-a-gpu) is which, of what, and what was not run.
- **text**: the words were found in that version's sources; its check was not run.
- **sources**: read in the sources; nothing is quoted, or the words were not looked up.
- **documents**: a note of the runtime's guides; the code says nothing.

What was executed ({versions}) and read stands in `tests/golden/sglang_rules/`, which the test suite holds against the rules.
`tests/wheels/check_rules.py` holds the rules against every release that was added. In a release that nobody read, a rule that
quotes the runtime holds if its sources still have the words.

Records of earlier versions may name a rule that is not on this page. It repeated a check of SGLang's argument code.
"""

_NOTES = {
    "Memory": """
`SL13` is an error and `SL14` a note about the same kernels, since what is lost depends on what is in use. Pages are given
out from the lowest and freed ones first again, so that a row beyond the reach is touched once all below are held at once, by
requests and by the prefixes that the radix cache keeps until the pool is full; the halves of a pair take freed pages last.
A server with trained weights gets there in time. A study with random weights has no answers to lose, a wrong row is as
many bytes as a right one, and a trial flushes the cache before it measures: the slices in `configs/`, most with pools of
5.8 to 18 million tokens, take at most 0.54 million between two flushes. They do not set max_total_tokens, for their committed
results were measured without. On one node of H200, H20, H800 or B200 no whole model that dsabench knows has room for so many
tokens; in two pipeline stages of 8 H200 each DeepSeek-V3.2 may have. Compiled and read in the sources, not seen on a GPU.

Whatever the pool, up to 0.5.18 the same kernels place what they write in 32 bits too: a batch whose requests have more than
3,728,270 tokens together, each counted with its cached part, goes wrong in the same way. No setting tells, so no rule does.

`MM02`, a prefill step that takes more memory than is left, is no rule of this table: it is [worked out](sglang.md#memory) from the model's widths.
""",
}


def page() -> str:
    """The whole page."""
    versions = ", ".join(executed()["versions"])
    counts = [sum(rule.severity == word for rule in RULES) for word in ("error", "overwritten", "advisory")]
    parts = [_HEAD.format(versions=versions)]
    parts.append(f"{len(RULES)} rules: {counts[0]} errors, {counts[1]} overwritten, {counts[2]} advisory.\n")
    for family, rules in FAMILIES.items():
        parts.append(f"## {family}\n")
        parts.append("| id | versions | severity | what | the runtime says | nearest legal setting | known from |")
        parts.append("|---|---|---|---|---|---|---|")
        parts += [_row(rule) for rule in rules]
        parts.append(_NOTES.get(family, ""))
    parts += [_died_on_a_gpu(), _never_executed()]
    return "\n".join(parts)


def _row(rule: Rule) -> str:
    cells = (
        f"`{rule.id}`",
        _range(rule),
        rule.severity,
        _cell(rule.condition),
        _said(rule),
        _cell(rule.fix),
        known_from(rule),
    )
    return f"| {' | '.join(cells)} |"


def _range(rule: Rule) -> str:
    return f"{rule.since} to {rule.until}" if rule.until else f"{rule.since} on"


def _said(rule: Rule) -> str:
    words = rule.words[-1]
    if words.kind in {"silent", "document"}:
        return f"nothing: {_cell(words.text)}"
    kind = "log" if words.kind == "log" else words.kind
    return f"{kind}: {_cell(words.text)}" if words.text else f"{kind}, without a message"


def _cell(text: str) -> str:
    """One line of a table: holes as `…`, nothing that Markdown reads."""
    flat = " ".join(re.sub(r"\{[^}]*\}|‹[^›]*›", "…", text).split())
    return re.sub(r"([|<>*_\[\]`])", r"\\\1", flat)


def known_from(rule: Rule) -> str:
    """How the rule was verified, and in which versions."""
    rows = executed()["rules"][rule.id]
    agreed = [version for version, row in rows.items() if row["outcome"] == "agrees"]
    silent = [version for version, row in rows.items() if row["outcome"] == "silent"]
    read = [version for version in texts().get(rule.id, {}) if version not in agreed]
    known = []
    for word, versions in (("executed", agreed), ("executed, silent", silent), ("text", read)):
        if versions:
            known.append(f"{word}: {_versions(versions)}")
    if not known:
        known.append("documents" if "documents:" in rule.source else "sources")
    if rule.id in on_gpu():
        known.insert(0, f"on a GPU: {on_gpu()[rule.id]['version']}")
    return "; ".join(known)


def _versions(versions: list[str]) -> str:
    return ", ".join(sorted(versions, key=lambda version: [int(part) for part in version.split(".")]))


def _died_on_a_gpu() -> str:
    parts = ["## Died on a GPU\n"]
    for rule, seen in on_gpu().items():
        device = HARDWARE[seen["hardware"]].device_name
        parts.append(
            f"`{rule}`: sglang {seen['version']} on one {device}, {seen['date']}; {seen['conditions']}. None was ever ready:\n"
        )
        parts += ["| KV, prefill + decode | where | the log | fault | |", "|---|---|---|---|---|"]
        parts += [
            f"| {_setting(boot['knobs'])} | `{boot['in']}` | {_cell(boot['said'])} | `{boot['fault']}` | {_cell(boot['note'])} |"
            for boot in seen["died"]
        ]
        served = seen["served"]
        settings = "; ".join(_setting(knobs) for knobs in served["knobs"])
        conditions = _cell(served["conditions"])
        parts.append(
            f"\nServed, in [{_cell(served['in'])}](../{served['in']}) ({conditions}): {settings}.\n\nNot run:\n"
        )
        parts += [*(f"- {_cell(what)}" for what in seen["not_run"]), ""]
    rest = (f"`{rule.id}` ({_cell(rule.condition)})" for rule in RULES if rule.id in UNSEEN - on_gpu().keys())
    parts.append(f"Errors of a batch too, of which nothing was run on a GPU: {'; '.join(rest)}.")
    return "\n".join(parts) + "\n"


def _setting(knobs: dict[str, Any]) -> str:
    pool = f", max_total_tokens {knobs['max_total_tokens']:,}" if "max_total_tokens" in knobs else ""
    return _cell(f"{knobs['kv_cache_dtype']}, {knobs['prefill_backend']} + {knobs['decode_backend']}{pool}")


def _never_executed() -> str:
    lines = ["## Never executed\n", "Rules of which no version's own check was run, nor a server on a GPU, and why.\n"]
    lines += ["| id | why | known from |", "|---|---|---|"]
    for rule in never_executed():
        why = next((row["why"] for row in executed()["rules"][rule.id].values()), "not in the versions executed")
        lines.append(f"| `{rule.id}` | {_cell(why)} | {known_from(rule)} |")
    return "\n".join(lines) + "\n"


def never_executed() -> list[Rule]:
    """Rules whose check was run in no version, on no machine."""
    rows = executed()["rules"]
    unseen = [rule for rule in RULES if all(row["outcome"] == "not executed" for row in rows[rule.id].values())]
    return [rule for rule in unseen if rule.id not in on_gpu()]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
