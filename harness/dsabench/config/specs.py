"""What a config becomes: frozen specs with every default filled in and every name checked."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from pydantic import Field, PositiveFloat

from dsabench.config.knob_types import KnobSettings
from dsabench.model.runtime import RuntimeKind, RuntimeSpec
from dsabench.model.secrets import BEHAVIOUR_PREFIX, looks_secret
from dsabench.model.study import Assignment, Budget, GateSpec, Objective, ProposerSpec, SearchSpace
from dsabench.model.topology import Role, RoleHosts, RouterSpec, Topology
from dsabench.model.value import FrozenMap, KnobValue, Value
from dsabench.model.workload import Workload

HardwareName = Literal["h200", "h20", "h800", "b200", "mi300x", "mi355x", "npu"]
"""Accelerators that defaults and rules are known for."""


class ContainerConfig(Value):
    """A container that has the runtime. It sees the machine's network and all its accelerators."""

    engine: Literal["docker", "podman", "enroot"] = "docker"
    image: str | None = None
    """Image, or enroot's container name; null takes the image that the documents name for the hardware."""
    mounts: tuple[str, ...] = ()
    """`HOST_PATH:CONTAINER_PATH`."""
    shm: str | None = None
    """Size of /dev/shm, as `32g`; null shares the machine's."""


class LaunchConfig(Value):
    """How the runtime is started on this machine. Never part of a trial's identity; its values are never recorded."""

    python: str | None = None
    """Interpreter that has the runtime; null takes the one that runs dsabench, or `python3` for kind sglang."""
    command_prefix: tuple[str, ...] = ()
    """Words before the command (`srun …`, `ssh {host}`, where {host} is the process's machine in `sites`). Only for sglang."""
    container: ContainerConfig | None = None
    """A container around the command. Only for sglang."""
    entry: Literal["launch_server", "serve"] = "launch_server"
    """`python -m sglang.launch_server`, or `sglang serve`. Only for sglang."""
    sites: FrozenMap[RoleHosts] = Field(default_factory=dict)
    """Where each role of a topology stands: server, prefill, decode, router. Only for sglang."""
    env: FrozenMap[str] = Field(default_factory=dict, repr=False)
    """Paths and tokens that the runtime needs. `SGLANG_…` names change behaviour and are moved to `runtime.env`."""


class RoleConfig(Role):
    """A role whose settings are checked by name."""

    knobs: KnobSettings = Field(default_factory=dict)
    """Settings of this role alone; they win over `runtime.base`."""


class TopologyConfig(Value):
    """The processes of a deployment; see `Topology`."""

    roles: tuple[RoleConfig, ...] = Field((RoleConfig(),), min_length=1)
    """One server role, or prefill and decode."""
    router: RouterSpec | None = None
    """What stands before prefill and decode."""

    def settled(self) -> Topology:
        """The value that a spec has.

        Raises:
            ValueError: the roles do not fit together.

        """
        return Topology.model_validate(self.model_dump())


class RuntimeConfig(Value):
    """The runtime, the model and the settings that every trial starts from."""

    kind: RuntimeKind
    """Which runtime serves the model."""
    launch: LaunchConfig = LaunchConfig()
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
    hardware: HardwareName | None = None
    """Accelerator; decides defaults and rules. Only for sglang."""
    topology: TopologyConfig | None = None
    """Roles × instances × nodes; null is one server on one machine. Not for external."""
    ready_timeout_s: PositiveFloat = 1800.0
    """Seconds from start to ready, at most."""

    def settled(self) -> RuntimeConfig:
        """The same with `launch.env`'s behaviour-changing variables moved to `env`, where they are recorded."""
        behaviour = {name: value for name, value in self.launch.env.items() if changes_behaviour(name)}
        rest = {name: value for name, value in self.launch.env.items() if name not in behaviour}
        launch = self.launch.model_copy(update={"env": MappingProxyType(rest)})
        return self.model_copy(update={"launch": launch, "env": MappingProxyType({**self.env, **behaviour})})

    def spec(self, assignment: Assignment) -> RuntimeSpec:
        """What is served under an assignment: the base with the assignment's values in place."""
        runtime = self.settled()
        return RuntimeSpec(
            kind=runtime.kind,
            model=runtime.model,
            version=runtime.version,
            knobs={**runtime.base, **assignment},
            env=runtime.env,
            base_url=runtime.base_url,
            hardware=runtime.hardware,
            topology=None if runtime.topology is None else runtime.topology.settled(),
        )


class StudyConfig(Value):
    """One study: what is served, what is asked of it, what is tried and what counts."""

    name: str
    runtime: RuntimeConfig
    workloads: tuple[Workload, ...]
    space: SearchSpace
    """The joint space of all sweeps of the config."""
    first: tuple[FrozenMap[KnobValue], ...] = ()
    """Measured before the proposer is asked; axes not named keep the base's value."""
    proposer: ProposerSpec
    objective: Objective
    budget: Budget
    gate: GateSpec | None = None

    def spec(self, assignment: Assignment) -> RuntimeSpec:
        """What is served under an assignment: the base with the assignment's values in place, and what follows from both."""
        return self.runtime.spec({**assignment, **self.space.brought_by({**self.runtime.base, **assignment})})

    @property
    def default(self) -> RuntimeSpec:
        """The base alone."""
        return self.spec({})

    @property
    def boots_to_confirm(self) -> int:
        """Of all sides together, at most."""
        return self.budget.sides(len(self.first)) * self.budget.confirm_boots


def changes_behaviour(name: str) -> bool:
    """Whether a variable belongs to the recorded settings, although it may stand in `launch.env`."""
    return name.startswith(BEHAVIOUR_PREFIX) and not looks_secret(name)
