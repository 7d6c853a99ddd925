"""Launch settings as text for a maintainer: conditions first, then what is asked for, what it gave, and its limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsabench.emit.flags import knobs_of
from dsabench.emit.pr_body import accuracy_of, measured_with
from dsabench.model.tuned_table import LaunchRule, TunedTable
from dsabench.sglang.readback import DIVIDED

TEXT_FILE = "launch-settings.md"


def launch_text(tables: Sequence[TunedTable], dsabench: str) -> str:
    """Markdown, a section for each table of launch settings."""
    parts = [line for table in tables for line in _section(table)]
    return "\n".join([*parts, f"Written by dsabench {dsabench}.", ""])


def _section(table: TunedTable) -> Iterator[str]:
    rule, evidence = table.rule, table.evidence
    assert isinstance(rule, LaunchRule), "the caller chose them"
    groups = rule.groups
    yield f"## Launch settings: {table.device.replace('_', ' ')}, {rule.strategy}, {table.heads_per_rank} heads a rank\n"
    yield "Conditions:\n"
    yield f"- {evidence.label} on {table.device.replace('_', ' ')} {measured_with(evidence)}; {table.kv_cache_dtype} KV cache."
    yield from (f"- {condition}." for condition in evidence.conditions)
    asked_for = f"to ask for, with {groups} groups" if groups > 1 else "to ask for"
    yield f"\n| setting | today, of one rank | advised, of one rank | {asked_for} |"
    yield "|---|---|---|---|"
    asked = knobs_of(table, groups)
    for name, value in rule.settings.items():
        yield f"| {name} | {rule.instead_of.get(name, '–')} | {value} | {asked[name]} |"
    if groups > 1 and any(name in DIVIDED for name in rule.settings):
        yield f"\nDP attention divides {' and '.join(name for name in DIVIDED if name in rule.settings)} among its {groups} groups."
    if evidence.ci_low is not None and evidence.ci_high is not None:
        boots = f"{evidence.n or '?'} boots a side, in turns"
        interval = f"{evidence.ci_low:+.1%} to {evidence.ci_high:+.1%}"
        told = interval if evidence.effect is None else f"{evidence.effect:+.1%} ({interval})"
        yield f"\nEffect: {evidence.metric} {told}, {boots}; the interval has 95 % or more."
    yield "\nAccuracy:\n"
    yield from accuracy_of(table)
    yield "\nMeasure it again:\n"
    yield f"```console\n{evidence.command or '# no command is recorded'}\n```\n"
    yield "Limits: other GPUs, heads a rank, strategies and loads keep today's settings. A flag of the user wins.\n"
