"""Where a record was measured: hardware, runtime identity, fingerprint."""

from __future__ import annotations

from dsabench.model.runtime import RuntimeKind
from dsabench.model.value import FrozenMap, Value, canonical_json, digest


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
