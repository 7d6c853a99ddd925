"""Kind → implementation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dsabench.config.specs import LaunchConfig, RuntimeConfig
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.runtime import Annotate, Refuse, RuntimeKind, annotate_nothing, refuse_nothing
from dsabench.runtimes.command import Launch
from dsabench.runtimes.external import External
from dsabench.runtimes.protocol import Runtime
from dsabench.runtimes.reference import Reference
from dsabench.runtimes.sglang.accepts import Accepted, from_table
from dsabench.runtimes.sglang.refuse import annotate_by, refuse_by
from dsabench.runtimes.sglang.runtime import TABLE, Sglang
from dsabench.runtimes.sglang.versions import parse_version

RUNTIMES: dict[RuntimeKind, Callable[[Launch], Runtime]] = {
    "reference": Reference,
    "sglang": Sglang,
    "external": External,
}


def make_runtime(config: RuntimeConfig) -> Runtime:
    """The runtime of that kind, started (or found) as the config says."""
    return RUNTIMES[config.kind](launch_of(config))


async def make_rules(config: RuntimeConfig, identity: RuntimeIdentity) -> tuple[Refuse, Annotate]:
    """What the runtime's rules say to a spec before a boot is spent on it: a refusal, and all else.

    The installed version is asked what it takes; one that is only planned for is looked up in the table.

    Raises:
        InputError: neither is to be had.

    """
    if config.kind != "sglang":
        return refuse_nothing, annotate_nothing
    launch = launch_of(config)
    accepted = await _accepted(launch, identity)
    return refuse_by(accepted, launch), annotate_by(accepted, launch)


async def _accepted(launch: Launch, identity: RuntimeIdentity) -> Accepted:
    if identity.wheel_hash == TABLE:
        return from_table(parse_version(identity.version))
    return await Sglang(launch).accepted()


def launch_of(config: RuntimeConfig) -> Launch:
    """How and where the config says to start it."""
    return launch_as(config.launch, config.base_url)


def launch_as(how: LaunchConfig, base_url: str | None = None) -> Launch:
    """The same from its two parts."""
    return Launch(
        python=None if how.python is None else Path(how.python),
        env=how.env,
        base_url=base_url,
        command_prefix=how.command_prefix,
        container=how.container,
        entry=how.entry,
        sites=how.sites,
    )
