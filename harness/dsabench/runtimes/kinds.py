"""The kinds of runtime, one line each."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable

from dsabench.config.specs import RuntimeConfig
from dsabench.model.runtime import RuntimeKind
from dsabench.runtimes.command import Launch, launch_of
from dsabench.runtimes.protocol import Runtime

RUNTIMES: dict[RuntimeKind, str] = {
    "reference": "dsabench.reference.runtime:ReferenceRuntime",
    "sglang": "dsabench.sglang.runtime:SglangRuntime",
    "external": "dsabench.runtimes.external:ExternalRuntime",
}
"""Imported on first use: a command that starts no runtime does not wait for them."""


def make_runtime(config: RuntimeConfig) -> Runtime:
    """The runtime of that kind, started (or found) as the config says."""
    return runtime_of(config.kind, launch_of(config))


def runtime_of(kind: RuntimeKind, launch: Launch) -> Runtime:
    """The runtime of that kind for a launch that no config says."""
    implementation: Callable[[Launch], Runtime] = pkgutil.resolve_name(RUNTIMES[kind])
    return implementation(launch)
