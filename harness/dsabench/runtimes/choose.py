"""Kind → implementation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dsabench.config.specs import RuntimeConfig
from dsabench.errors import InputError
from dsabench.model.refusal import Refuse, refuse_nothing
from dsabench.model.runtime import RuntimeKind
from dsabench.runtimes.external import External
from dsabench.runtimes.launch import Launch
from dsabench.runtimes.protocol import Runtime
from dsabench.runtimes.reference import Reference
from dsabench.runtimes.sglang.accepts import from_table
from dsabench.runtimes.sglang.installed import Installed
from dsabench.runtimes.sglang.refuse import refuse_by
from dsabench.runtimes.sglang.versions import parse_version

RUNTIMES: dict[RuntimeKind, Callable[[Launch], Runtime]] = {"reference": Reference, "external": External}


def make_runtime(config: RuntimeConfig) -> Runtime:
    """The runtime of that kind, started (or found) as the config says.

    Raises:
        InputError: there is none of that kind.

    """
    if config.kind not in RUNTIMES:
        raise InputError(f"runtime.kind: {config.kind} is not available (available: {', '.join(RUNTIMES)})")
    python = None if config.launch.python is None else Path(config.launch.python)
    return RUNTIMES[config.kind](Launch(python=python, env=config.launch.env, base_url=config.base_url))


async def make_refuse(config: RuntimeConfig) -> Refuse:
    """What the runtime's rules say to a spec before a boot is spent on it.

    The installed version is asked what it takes; where none can be, the version that the config names is looked up.

    Raises:
        InputError: neither is to be had.

    """
    if config.kind != "sglang":
        return refuse_nothing
    how = config.launch
    launch = Launch(
        python=None if how.python is None else Path(how.python),
        env=how.env,
        command_prefix=how.command_prefix,
        container=how.container,
        entry=how.entry,
        sites=how.sites,
    )
    try:
        accepted = await Installed(launch).accepted()
    except InputError:
        if config.version is None:
            raise
        accepted = from_table(parse_version(config.version))
    return refuse_by(accepted, launch)
