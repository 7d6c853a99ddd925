"""Kind → implementation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dsabench.config.specs import RuntimeConfig
from dsabench.errors import InputError
from dsabench.model.runtime import RuntimeKind
from dsabench.runtimes.external import External
from dsabench.runtimes.launch import Launch
from dsabench.runtimes.protocol import Runtime
from dsabench.runtimes.reference import Reference

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
