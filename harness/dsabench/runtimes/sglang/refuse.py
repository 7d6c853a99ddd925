"""Asks the rules of one version about specs that are not launched yet."""

from __future__ import annotations

from dsabench.model.refusal import Refusal, Refuse
from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.launch import Launch
from dsabench.runtimes.sglang.accepts import Accepted
from dsabench.runtimes.sglang.judge import judge
from dsabench.runtimes.sglang.topology import plan


def refuse_by(accepted: Accepted, launch: Launch) -> Refuse:
    """The first error that the rules or the rendering have against a spec.

    Asking raises InputError where the launch itself is wrong (sites, image), whatever the spec.
    """

    def refuse(spec: RuntimeSpec) -> Refusal | None:
        objections = judge(plan(spec, accepted, launch), spec, accepted)
        first = next((found for found in objections if found.severity == "error"), None)
        return None if first is None else Refusal(first.rule, str(first))

    return refuse
