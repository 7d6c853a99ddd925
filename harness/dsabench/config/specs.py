"""A loaded config: frozen values with all defaults filled in and all names checked."""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt

from dsabench.config.knob_types import KnobSettings
from dsabench.config.runtime_kinds import reload_free_of
from dsabench.errors import InputError
from dsabench.model.hardware import HARDWARE, accelerator
from dsabench.model.numerics import differs, stated
from dsabench.model.runtime import RuntimeKind, RuntimeSpec
from dsabench.model.secrets import BEHAVIOUR_PREFIX, looks_secret
from dsabench.model.study import Assignment, Budget, GateSpec, Objective, ProposerSpec, SearchSpace
from dsabench.model.topology import Role, RoleHosts, RouterSpec, Topology
from dsabench.model.value import FrozenMap, KnobValue, Value
from dsabench.model.workload import Workload


def _known_hardware(name: str) -> str:
    try:
        return accelerator(name).name
    except InputError as error:
        raise ValueError(str(error)) from None


HardwareName = Annotated[str, AfterValidator(_known_hardware), Field(examples=[*HARDWARE, "sm_89-48gib"])]
"""An accelerator by name, or by architecture and memory; see `model/hardware.py`."""


class ContainerConfig(Value):
    """A container with the runtime. It uses the network and all accelerators of the machine."""

    engine: Literal["docker", "podman", "enroot"] = "docker"
    image: str | None = None
    """Image, or enroot's container name; null takes the documented image for the hardware."""
    mounts: tuple[str, ...] = ()
    """`HOST_PATH:CONTAINER_PATH`."""
    shm: str | None = None
    """Size of /dev/shm, such as `32g`; null shares that of the machine."""


class LaunchConfig(Value):
    """How the runtime starts on this machine. It is not part of a trial, and its values are never recorded."""

    python: str | None = None
    """Interpreter with the runtime; null takes dsabench's own, or `python3` for kind sglang."""
    command_prefix: tuple[str, ...] = ()
    """Words before the command (`srun …`, `ssh {host}`; {host} is the machine of the process in `sites`). Only for
    sglang.
    """
    container: ContainerConfig | None = None
    """Container for the command. Only for sglang."""
    entry: Literal["launch_server", "serve"] = "launch_server"
    """`python -m sglang.launch_server`, or `sglang serve`. Only for sglang."""
    sites: FrozenMap[RoleHosts] = Field(default_factory=dict)
    """Machines of each role of a topology: server, prefill, decode, router. Only for sglang."""
    env: FrozenMap[str] = Field(default_factory=dict, repr=False)
    """Paths and tokens for the runtime. `SGLANG_…` variables change behaviour and are moved to `runtime.env`."""


class RoleConfig(Role):
    """A role whose knobs are checked by name."""

    knobs: KnobSettings = Field(default_factory=dict)
    """Settings of this role only. They override `runtime.base`."""


class TopologyConfig(Value):
    """The processes of a deployment; see `Topology`."""

    roles: tuple[RoleConfig, ...] = Field((RoleConfig(),), min_length=1)
    """One server role, or prefill and decode."""
    router: RouterSpec | None = None
    """The router in front of prefill and decode."""

    def settled(self) -> Topology:
        """The topology of a spec.

        Raises:
            ValueError: the roles do not fit together.

        """
        return Topology(roles=tuple(Role(**dict(role)) for role in self.roles), router=self.router)


class RuntimeConfig(Value):
    """The runtime, the model and the settings that every trial starts from."""

    kind: RuntimeKind
    """The runtime that serves the model."""
    launch: LaunchConfig = LaunchConfig()
    """How it starts here; not recorded."""
    model: str = Field(min_length=1)
    """A size of the reference model, or a model's path or name for other runtimes."""
    version: str | None = None
    """The requested version; null takes the installed one."""
    base: KnobSettings = Field(default_factory=dict)
    """Settings of the default, with which the search is compared. Axes replace them."""
    env: FrozenMap[str] = Field(default_factory=dict)
    """Environment variables that change behaviour. They are recorded, so they must not be secret."""
    base_url: str | None = None
    """Only for kind external: URL of the running server."""
    hardware: HardwareName | None = None
    """Accelerator; it decides defaults and rules. Only for sglang."""
    topology: TopologyConfig | None = None
    """Roles × instances × nodes; null is one server on one machine. Not for external."""
    ready_timeout_s: PositiveFloat = 1800.0
    """Seconds from start to ready, at most."""

    def settled(self) -> RuntimeConfig:
        """Move the variables of `launch.env` that change behaviour to `env`, where they are recorded."""
        behaviour = {name: value for name, value in self.launch.env.items() if changes_behaviour(name)}
        rest = {name: value for name, value in self.launch.env.items() if name not in behaviour}
        launch = self.launch.model_copy(update={"env": MappingProxyType(rest)})
        return self.model_copy(update={"launch": launch, "env": MappingProxyType({**self.env, **behaviour})})

    def spec(self, assignment: Assignment) -> RuntimeSpec:
        """The spec of an assignment: the base with the assignment's values."""
        knobs = MappingProxyType({**self.of_base.knobs, **assignment})
        return self.of_base.model_copy(update={"knobs": knobs})

    @cached_property
    def of_base(self) -> RuntimeSpec:
        """The spec of the base alone."""
        runtime = self.settled()
        return RuntimeSpec(
            kind=runtime.kind,
            model=runtime.model,
            version=runtime.version,
            knobs=runtime.base,
            env=runtime.env,
            base_url=runtime.base_url,
            hardware=runtime.hardware,
            topology=None if runtime.topology is None else runtime.topology.settled(),
        )


class MemorySpec(Value):
    """What a study begins with: journals of earlier ones, and times of kernels."""

    journals: tuple[str, ...] = ()
    """Results folders or journals, as found from the working directory or the config's folder."""
    winners: int
    """Settings of theirs that are measured first."""
    kernels: str | None = None
    """A folder of kernel times, found alike."""


class StudyConfig(Value):
    """One study: runtime, workloads, search space and objective."""

    name: str
    runtime: RuntimeConfig
    workloads: tuple[Workload, ...]
    space: SearchSpace
    """The joint space of all sweeps of the config."""
    first: tuple[FrozenMap[KnobValue], ...] = ()
    """Measured before the proposer is asked. Axes that are not named keep the base's value."""
    memory: MemorySpec | None = None
    """Earlier studies: their winners are measured after `first`, their failures not at all."""
    proposer: ProposerSpec
    objective: Objective
    budget: Budget
    gate: GateSpec | tuple[GateSpec, ...] | None = None
    """One eval, or several."""
    price_per_gpu_hour: float | None = None
    """Dollars; it gives forecasts and trials their cost."""
    autotune: Autotune = Field(default_factory=lambda: Autotune())  # noqa: PLW0108 (it is defined below)
    """What `dsabench autotune` tunes after the sweep."""
    accept: tuple[AcceptServer, ...] = ()
    """What `dsabench accept` measures."""

    @property
    def gates(self) -> tuple[GateSpec, ...]:
        """Every eval that the best setting must pass."""
        if self.gate is None:
            return ()
        return (self.gate,) if isinstance(self.gate, GateSpec) else self.gate

    @property
    def gates_of_settings(self) -> tuple[GateSpec, ...]:
        """Those that every setting of the search answers."""
        return tuple(gate for gate in self.gates if gate.ask == "settings")

    @cached_property
    def searched_space(self) -> SearchSpace:
        """The space without the values that the objective lets not win, beside the base's own."""
        if self.objective.numerics == "any":
            return self.space
        base = self.default.knobs
        apart = tuple(
            {axis.name: value}
            for axis in self.space.axes
            for value in axis.values
            if differs(axis.name, stated(base, axis.name), value)
        )
        return self.space.model_copy(update={"forbid": (*self.space.forbid, *apart)})

    @property
    def reload_free(self) -> frozenset[str]:
        """The axes whose values a running server changes."""
        return reload_free_of(self.runtime) & {axis.name for axis in self.space.axes}

    @property
    def finalists(self) -> int:
        """Settings that are confirmed at most, each because the gate refused the one before it."""
        return max((gate.finalists for gate in self.gates), default=1)

    def spec(self, assignment: Assignment) -> RuntimeSpec:
        """The spec of an assignment: the base with the assignment's values, and the knobs that follow from both."""
        return self.runtime.spec({**assignment, **self.space.brought_by({**self.runtime.base, **assignment})})

    @cached_property
    def default(self) -> RuntimeSpec:
        """The spec of the base without any assignment."""
        return self.spec({})

    def workloads_of(self, phase: str) -> tuple[Workload, ...]:
        """The workloads as a search or a confirmation sends them; they differ only where a dataset is split."""
        return self.search_workloads if phase == "search" else tuple(one.in_phase(phase) for one in self.workloads)

    @cached_property
    def search_workloads(self) -> tuple[Workload, ...]:
        """Those of the search."""
        return tuple(workload.in_phase("search") for workload in self.workloads)

    @cached_property
    def recorded_workloads(self) -> frozenset[Workload]:
        """Every workload that a record of this study may have."""
        return frozenset(self.search_workloads + self.workloads_of("confirm"))

    @property
    def boots_to_confirm(self) -> int:
        """Confirmation boots of all sides together, at most."""
        return self.budget.sides(len(self.first)) * self.budget.confirm_boots

    def with_boots_as_before(self, before: StudyConfig) -> StudyConfig:
        """With as many boots for the search as before: more boots of the confirmation must not take the place of searched settings."""
        if before.budget.max_boots is None:
            return self
        grown = before.budget.max_boots + self.boots_to_confirm - before.boots_to_confirm
        return self.model_copy(update={"budget": self.budget.model_copy(update={"max_boots": grown})})


class KernelTimes(Value):
    """The kernel times of `tune flashmla-auto`."""

    shapes: tuple[str, ...] = ()
    """Ids or patterns of shapes; empty takes all that have the model's heads per rank."""
    spread: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.02
    """A time is stable when half of its 95 % interval is at most this share of it."""
    time_s: PositiveFloat | None = None
    """Time limit of one run, in seconds."""


class HisparseMemory(Value):
    """What `tune hisparse` knows of the full deployment."""

    gpus: Annotated[int, Field(ge=1)] = 8
    """GPUs that share its experts."""
    host_memory_gib: PositiveFloat | None = None
    """Host memory of a rank; null shares out what is free."""


class Tune(Value):
    """A tune of `dsabench autotune`: a study of its own."""

    study: StudyConfig
    """Its base is that of the config until the sweep has a winner."""
    fixed: tuple[str, ...] = ()
    """Knobs that the winner does not replace."""


class KernelTune(Tune):
    """`tune flashmla-auto`."""

    kernels: KernelTimes = KernelTimes()


class HisparseTune(Tune):
    """`tune hisparse`."""

    memory: HisparseMemory = HisparseMemory()


class MtpTune(Tune):
    """`tune mtp`."""

    accept_rate: float | None = None


class Autotune(Value):
    """The tunes of `dsabench autotune`, in this order; None is skipped."""

    flashmla_auto: KernelTune | None = None
    mha_threshold: Tune | None = None
    hisparse: HisparseTune | None = None
    mtp: MtpTune | None = None
    proof: int = 3
    """Boots with and without each table."""

    def of(self, kind: str) -> Tune | None:
        """The tune that makes tables of a kind."""
        tunes: dict[str, Tune | None] = {
            "flashmla_auto": self.flashmla_auto,
            "mha_threshold": self.mha_threshold,
            "hisparse": self.hisparse,
            "mtp": self.mtp,
        }
        return tunes[kind]


class AcceptEval(Value):
    """One eval of an acceptance."""

    eval: str
    """The name of an eval in evals/, or a file."""
    data: str | None = None
    """The eval's data file; null downloads it once."""
    repeat: PositiveInt | None = None
    """Passes over the questions; null takes those of the eval's file."""


class AcceptServer(Value):
    """A server of `dsabench accept`: its loads and evals are held beside published ones."""

    name: str
    study: StudyConfig
    """Its default is the server, its workloads are the loads."""
    evals: tuple[AcceptEval, ...] = ()
    beside: FrozenMap[str] = Field(default_factory=dict)
    """Workload → published run."""


def changes_behaviour(name: str) -> bool:
    """Whether a variable belongs to the recorded settings, even if it is in `launch.env`."""
    return name.startswith(BEHAVIOUR_PREFIX) and not looks_secret(name)
