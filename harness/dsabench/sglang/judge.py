"""Everything there is to say about a deployment before it is launched: the rules, and what rendering noticed."""

from __future__ import annotations

from dsabench.model.hardware import accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.plan import LaunchPlan, PlanRemark, settle
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.resolve.releases import added_release
from dsabench.sglang.rules.in_force import rules_gone
from dsabench.sglang.rules.table import Finding, check
from dsabench.sglang.versions import READ

Objection = Finding | PlanRemark
"""Has `rule`, `severity`, and a line of text."""


def _gone(accepted: Accepted) -> frozenset[str] | None:
    """Rules that a version which nobody read does not have; None where it was read, or its sources are not here."""
    added = None if accepted.version in READ else added_release(accepted.release)
    return None if added is None else rules_gone(added.tree)


def judge(commands: LaunchPlan, spec: RuntimeSpec, accepted: Accepted) -> tuple[Objection, ...]:
    """Errors first; what two roles or both sources say is said once."""
    device = None if spec.hardware is None else accelerator(spec.hardware)
    asked = settle(spec)
    findings = check(asked, accepted.version, device, asked.topology, _gone(accepted))
    objections: list[Objection] = [*findings, *commands.remarks]
    once = {str(objection): objection for objection in objections}.values()
    return tuple(sorted(once, key=lambda objection: objection.severity != "error"))
