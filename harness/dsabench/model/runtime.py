"""What runs: the runtime's kind, model and settings; and the machine that it ran on."""

from __future__ import annotations

from collections.abc import Container
from typing import Literal

from pydantic import Field

from dsabench.model.knobs import KnobValue
from dsabench.model.topology import Topology
from dsabench.model.value import FrozenMap, Value, canonical_json, digest

RuntimeKind = Literal["reference", "sglang", "external"]


class RuntimeSpec(Value):
    """All that decides how a server behaves, and nothing about where its interpreter lies."""

    kind: RuntimeKind
    model: str
    """A size of the reference model, or a model path or name for other runtimes."""
    version: str | None = None
    """The version asked for; None takes what is installed (which the environment records)."""
    knobs: FrozenMap[KnobValue] = Field(default_factory=dict)
    """Canonical knob name → value; see `knobs.KNOBS`."""
    env: FrozenMap[str] = Field(default_factory=dict)
    """Environment variables that change behaviour. Recorded, so never a secret."""
    base_url: str | None = None
    """Only for `external`: the server to attach to."""
    hardware: str | None = None
    """Accelerator the spec is meant for (`h200`, …), which decides defaults and rules; None where it does not matter."""
    topology: Topology | None = None
    """The processes of a deployment; None is one server on one machine."""

    @property
    def id(self) -> str:
        """sha256 of the canonical JSON: equal specs can share a boot."""
        return digest(canonical_json(self))

    def changes(self, default: RuntimeSpec, left_out: Container[str] = ()) -> str:
        """Knobs that differ from the default's, as `knob=value knob=value`; `default` where none does."""
        knobs = ((name, value) for name, value in self.knobs.items() if name not in left_out)
        return " ".join(f"{name}={value}" for name, value in knobs if default.knobs.get(name) != value) or "default"


class Gpu(Value):
    """One accelerator as the driver names it."""

    name: str
    memory_mib: int
    uuid: str | None = None


class Hardware(Value):
    """What the measuring process can use of this machine."""

    cpu: str
    cpu_cores: int
    """Cores this process may run on (its affinity), not those the machine has."""
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None


class RuntimeIdentity(Value):
    """What is installed: enough to say whether two measurements were of the same program."""

    kind: RuntimeKind
    version: str
    wheel_hash: str
    """sha256 over the runtime's own code (RECORD of its wheel, or its source files)."""
    torch: str | None = None
    python: str | None = None
    packages: FrozenMap[str] | None = None
    """Version of what else decides its speed (kernel packages, CUDA of its torch); None where nobody looked."""


class Environment(Value):
    """Where a record was measured. `fingerprint` covers hardware and runtime, never host, time or dsabench's commit."""

    fingerprint: str
    hardware: Hardware
    runtime: RuntimeIdentity
    host: str
    os: str
    dsabench_version: str
    dsabench_commit: str | None = None
    """Commit of the checkout dsabench ran from, with `+dirty` where it had changes; None outside a checkout."""


def fingerprint(hardware: Hardware, runtime: RuntimeIdentity) -> str:
    """First 16 hex digits of the sha256 over hardware and runtime, GPU serials left out."""
    return digest(canonical_json(without_serials(hardware)) + canonical_json(runtime))[:16]


def without_serials(hardware: Hardware) -> Hardware:
    """The same for every GPU of a kind."""
    gpus = tuple(gpu.model_copy(update={"uuid": None}) for gpu in hardware.gpus)
    return hardware.model_copy(update={"gpus": gpus})
