"""Asks the rules of one version about specs that are not launched yet."""

from __future__ import annotations

from dsabench.config.specs import RuntimeConfig
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.runtime import Annotate, Refuse, RuleNote, RuleRefusal, RuntimeSpec
from dsabench.runtimes.command import Launch, launch_of
from dsabench.sglang.accepts import Accepted, from_table
from dsabench.sglang.runtime import TABLE, SglangRuntime, objections_to, refusal_of
from dsabench.sglang.versions import parse_version


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


async def make_rules(config: RuntimeConfig, identity: RuntimeIdentity) -> tuple[Refuse, Annotate]:
    """What sglang's rules say to a spec before a boot is spent on it: a refusal, and all else.

    The installed version is asked what it takes; one that is only planned for is looked up in the table.

    Raises:
        InputError: neither is to be had.

    """
    launch = launch_of(config)
    accepted = await _accepted(launch, identity)
    return refuse_by(accepted, launch), annotate_by(accepted, launch)


async def _accepted(launch: Launch, identity: RuntimeIdentity) -> Accepted:
    if identity.wheel_hash == TABLE:
        return from_table(parse_version(identity.version))
    return await SglangRuntime(launch).accepted()
