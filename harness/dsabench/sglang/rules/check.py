"""Holds a spec against every rule of its version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dsabench.model.hardware import Accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import SINGLE, Topology
from dsabench.sglang.rules.book import RULES
from dsabench.sglang.rules.finding import Finding
from dsabench.sglang.rules.resolve import resolve
from dsabench.sglang.rules.rule import READ, Rule
from dsabench.sglang.rules.setting import Setting
from dsabench.sglang.versions import Version

_ORDER = ("error", "overwritten", "advisory")


def check(
    spec: RuntimeSpec, version: Version, hardware: Accelerator | None, topology: Topology | None = None
) -> tuple[Finding, ...]:
    """Everything known against this spec, errors first. Never raises.

    Rules about hardware stay silent where it is not known. A topology given here replaces the spec's own.
    """
    roles = (topology or spec.topology or SINGLE).roles
    findings = [*_unread(version, roles[0].role)]
    for setting in _paired([resolve(spec, role, version, hardware) for role in roles]):
        findings += [_finding(rule, setting) for rule in RULES if rule.holds_in(version) and rule.when(setting)]
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.severity)))


def _paired(settings: Sequence[Setting]) -> Iterator[Setting]:
    """Prefill and decode told of each other's kernels: the cache of one is read by the other."""
    halves = {setting.role: setting.kernels for setting in settings}
    other = {"prefill": halves.get("decode"), "decode": halves.get("prefill")}
    for setting in settings:
        yield replace(setting, peer=other.get(setting.role))


def _finding(rule: Rule, setting: Setting) -> Finding:
    words = rule.words_in(setting.version)
    values = ", ".join(f"{name}={setting.knobs[name]}" for name in rule.knobs if name in setting.knobs)
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        role=setting.role,
        message=f"{rule.condition} ({values})" if values else rule.condition,
        kind=words.kind,
        says=words.text.format(s=setting),
        fix=rule.fix,
        change=dict(rule.change(setting)) if rule.change else {},
    )


def _unread(version: Version, role: str) -> Iterator[Finding]:
    if version in READ:
        return
    nearest = max((read for read in READ if read < version), default=READ[0])
    yield Finding(
        rule="VR01",
        severity="advisory",
        role=role,
        message=f"sglang {version} was not read; the rules of {nearest} are taken for it",
        kind="silent",
        says="unknown",
        fix=f"sglang {nearest}",
        change={},
    )
