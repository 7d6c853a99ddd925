"""Everything there is to say about a deployment before it is launched: the rules, and what rendering noticed."""

from __future__ import annotations

from dsabench.model.hardware import accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.plan import LaunchPlan, PlanRemark, settle
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.rules import Finding, check

Objection = Finding | PlanRemark
"""Has `rule`, `severity`, and a line of text."""


def judge(commands: LaunchPlan, spec: RuntimeSpec, accepted: Accepted) -> tuple[Objection, ...]:
    """Errors first; what two roles or both sources say is said once."""
    device = None if spec.hardware is None else accelerator(spec.hardware)
    asked = settle(spec)
    findings = check(asked, accepted.version, device, asked.topology)
    objections: list[Objection] = [*findings, *commands.remarks]
    once = {str(objection): objection for objection in objections}.values()
    return tuple(sorted(once, key=lambda objection: objection.severity != "error"))
