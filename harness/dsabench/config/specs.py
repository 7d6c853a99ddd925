"""What a config becomes: frozen specs with every default filled in and every name checked."""

from __future__ import annotations

from types import MappingProxyType

from pydantic import Field, PositiveFloat

from dsabench.config.knob_types import KnobSettings
from dsabench.model.runtime import RuntimeKind, RuntimeSpec
from dsabench.model.secrets import BEHAVIOUR_PREFIX, looks_secret
from dsabench.model.space import Assignment, SearchSpace
from dsabench.model.study import Budget, Gate, Objective, ProposerSpec
from dsabench.model.value import FrozenMap, Value
from dsabench.model.workload import Workload

DRIVEN: tuple[RuntimeKind, ...] = ("reference", "external")
"""The kinds of runtime that this version drives."""

REFERENCE_MODELS = ("tiny", "small")
"""Sizes of the reference model."""


class LaunchSpec(Value):
    """How the runtime is started on this machine. Never part of a trial's identity; its values are never recorded."""

    python: str | None = None
    """Interpreter that has the runtime installed; null takes the one that runs dsabench."""
    env: FrozenMap[str] = Field(default_factory=dict, repr=False)
    """Paths and tokens that the runtime needs. `SGLANG_…` names change behaviour and are moved to `runtime.env`."""


class RuntimeConfig(Value):
    """The runtime, the model and the settings that every trial starts from."""

    kind: RuntimeKind
    """Which runtime serves the model."""
    launch: LaunchSpec = LaunchSpec()
    """How it is started here; not recorded."""
    model: str = Field(min_length=1)
    """A size of the reference model, or a model path or name for other runtimes."""
    version: str | None = None
    """The version asked for; null takes what is installed."""
    base: KnobSettings = Field(default_factory=dict)
    """Settings of the default, with which the search is compared; axes replace them one by one."""
    env: FrozenMap[str] = Field(default_factory=dict)
    """Environment variables that change behaviour. Recorded, so never a secret."""
    base_url: str | None = None
    """Only for kind external: the server to attach to."""
    ready_timeout_s: PositiveFloat = 1800.0
    """Seconds from start to ready, at most."""

    def settled(self) -> RuntimeConfig:
        """The same with `launch.env`'s behaviour-changing variables moved to `env`, where they are recorded."""
        behaviour = {name: value for name, value in self.launch.env.items() if changes_behaviour(name)}
        rest = {name: value for name, value in self.launch.env.items() if name not in behaviour}
        launch = self.launch.model_copy(update={"env": MappingProxyType(rest)})
        return self.model_copy(update={"launch": launch, "env": MappingProxyType({**self.env, **behaviour})})


class SweepConfig(Value):
    """One study: what is served, what is asked of it, what is tried and what counts."""

    name: str
    runtime: RuntimeConfig
    workloads: tuple[Workload, ...]
    space: SearchSpace
    """The joint space of all sweeps of the config."""
    proposer: ProposerSpec
    objective: Objective
    budget: Budget
    gate: Gate | None = None

    def spec(self, assignment: Assignment) -> RuntimeSpec:
        """What is served under an assignment: the base with the assignment's values in place."""
        runtime = self.runtime.settled()
        return RuntimeSpec(
            kind=runtime.kind,
            model=runtime.model,
            version=runtime.version,
            knobs={**runtime.base, **assignment},
            env=runtime.env,
            base_url=runtime.base_url,
        )

    @property
    def default(self) -> RuntimeSpec:
        """The base alone."""
        return self.spec({})


def changes_behaviour(name: str) -> bool:
    """Whether a variable belongs to the recorded settings, although it may stand in `launch.env`."""
    return name.startswith(BEHAVIOUR_PREFIX) and not looks_secret(name)
