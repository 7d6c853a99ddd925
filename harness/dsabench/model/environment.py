"""Where a record was measured: hardware, runtime identity, fingerprint."""

from __future__ import annotations

from dsabench.model.runtime import RuntimeKind
from dsabench.model.value import FrozenMap, Value, canonical_json, digest


class Gpu(Value):
    """One accelerator, named as the driver names it."""

    name: str
    memory_mib: int
    uuid: str | None = None


class Hardware(Value):
    """The part of this machine that the measuring process can use."""

    cpu: str
    cpu_cores: int
    """Cores that this process may run on (its affinity), not all cores of the machine."""
    memory_mib: int
    """Installed, or what the control group of this process allows, if that is less."""
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None


class RuntimeIdentity(Value):
    """What is installed: enough to tell whether two measurements used the same program."""

    kind: RuntimeKind
    version: str
    wheel_hash: str
    """sha256 of the runtime's own code (RECORD of its wheel, or its source files)."""
    torch: str | None = None
    python: str | None = None
    packages: FrozenMap[str] | None = None
    """Versions of other packages that decide its speed (kernels, CUDA of its torch); None if nobody looked."""


class Environment(Value):
    """Where a record was measured. `fingerprint` covers hardware and runtime, but not host, time or dsabench's commit."""

    fingerprint: str
    hardware: Hardware
    runtime: RuntimeIdentity
    host: str
    machine: str | None = None
    """Hash of the host's name and ids, which tells machines apart; None in records that are older than it."""
    os: str
    dsabench_version: str
    dsabench_commit: str | None = None
    """Commit of the checkout that dsabench ran from, with `+dirty` if its code was changed; None outside a checkout."""


def fingerprint(hardware: Hardware, runtime: RuntimeIdentity) -> str:
    """First 16 hex digits of the sha256 of hardware and runtime, without GPU serial numbers."""
    return digest(canonical_json(without_serials(hardware)) + canonical_json(runtime))[:16]


def without_serials(hardware: Hardware) -> Hardware:
    """The hardware without serial numbers, so that equal GPUs are equal."""
    gpus = tuple(gpu.model_copy(update={"uuid": None}) for gpu in hardware.gpus)
    return hardware.model_copy(update={"gpus": gpus})
