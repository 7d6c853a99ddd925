"""Asks the rules of one version about specs that are not launched yet."""

from __future__ import annotations

from dsabench.model.runtime import Annotate, Refuse, RuleNote, RuleRefusal, RuntimeSpec
from dsabench.runtimes.command import Launch
from dsabench.runtimes.sglang.accepts import Accepted
from dsabench.runtimes.sglang.runtime import objections_to, refusal_of


def refuse_by(accepted: Accepted, launch: Launch) -> Refuse:
    """What a boot of a spec would be refused for.

    Asking raises InputError where the launch itself is wrong (sites, image), whatever the spec.
    """

    def refuse(spec: RuntimeSpec) -> RuleRefusal | None:
        line = refusal_of(spec, accepted, launch)
        return None if line is None else RuleRefusal(line.partition(":")[0], line)

    return refuse


def annotate_by(accepted: Accepted, launch: Launch) -> Annotate:
    """What the rules say of a spec beside a refusal. Asking raises as above."""

    def annotate(spec: RuntimeSpec) -> tuple[RuleNote, ...]:
        objections = objections_to(spec, accepted, launch)
        return tuple(
            RuleNote(one.rule, str(one), overrules=one.severity == "overwritten")
            for one in objections
            if one.severity != "error"
        )

    return annotate
