"""Asks the rules of one version about specs that are not launched yet."""

from __future__ import annotations

from dsabench.model.refusal import Annotate, Note, Refusal, Refuse
from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.launch import Launch
from dsabench.runtimes.sglang.accepts import Accepted
from dsabench.runtimes.sglang.runtime import objections_to, refusal_of


def refuse_by(accepted: Accepted, launch: Launch) -> Refuse:
    """What a boot of a spec would be refused for.

    Asking raises InputError where the launch itself is wrong (sites, image), whatever the spec.
    """

    def refuse(spec: RuntimeSpec) -> Refusal | None:
        line = refusal_of(spec, accepted, launch)
        return None if line is None else Refusal(line.partition(":")[0], line)

    return refuse


def annotate_by(accepted: Accepted, launch: Launch) -> Annotate:
    """What the rules say of a spec beside a refusal. Asking raises as above."""

    def annotate(spec: RuntimeSpec) -> tuple[Note, ...]:
        objections = objections_to(spec, accepted, launch)
        return tuple(
            Note(one.rule, str(one), overrules=one.severity == "overwritten")
            for one in objections
            if one.severity != "error"
        )

    return annotate
