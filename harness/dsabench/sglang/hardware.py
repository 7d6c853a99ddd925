"""The accelerators that the documents name, and the kernels the runtime takes on them when none are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dsabench.errors import InputError
from dsabench.runtimes.command import Platform
from dsabench.sglang.versions import Version

KvDtype = Literal["bfloat16", "fp8_e4m3"]


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One kind of device. `capability` is CUDA's compute capability, or what ROCm reports in its place."""

    name: str
    device_name: str
    """As the driver says it, up to trailing variants."""
    platform: Platform
    memory_gib: int
    capability: tuple[int, int] | None = None

    @property
    def sm_major(self) -> int | None:
        """9 is Hopper, 10 Blackwell; None where it is no CUDA device."""
        return self.capability[0] if self.platform == "cuda" and self.capability else None

    @property
    def kv_auto(self) -> KvDtype:
        """What `kv_cache_dtype: auto` becomes for a DSA model (0.5.23 srt/arg_groups/overrides.py:530)."""
        return "fp8_e4m3" if self.capability is not None and self.capability[0] >= 10 else "bfloat16"


HARDWARE: dict[str, Accelerator] = {
    accelerator.name: accelerator
    for accelerator in (
        Accelerator("h200", "NVIDIA H200", "cuda", 141, (9, 0)),
        Accelerator("h20", "NVIDIA H20", "cuda", 96, (9, 0)),
        Accelerator("h800", "NVIDIA H800", "cuda", 80, (9, 0)),
        Accelerator("b200", "NVIDIA B200", "cuda", 180, (10, 0)),
        Accelerator("mi300x", "AMD Instinct MI300X", "rocm", 192, (9, 4)),
        Accelerator("mi355x", "AMD Instinct MI355X", "rocm", 288, (9, 5)),
        Accelerator("npu", "Ascend 910", "npu", 64),
    )
}


def accelerator(name: str) -> Accelerator:
    """The accelerator of that name.

    Raises:
        InputError: none; the line lists the known ones.

    """
    found = HARDWARE.get(name.lower())
    if found is None:
        raise InputError(f"{name}: unknown hardware (known: {', '.join(HARDWARE)})")
    return found


@dataclass(frozen=True, slots=True)
class DefaultKernels:
    """What runs when neither backend is set, from a version on."""

    since: Version
    prefill: str
    decode: str
    forced: bool = False
    """True where the runtime overwrites what the user set, without an error."""


_V9, _V10, _V11, _V20 = (Version(0, 5, patch) for patch in (9, 10, 11, 20))

_HOPPER_BF16 = (DefaultKernels(_V9, "flashmla_sparse", "fa3"),)
_BLACKWELL_BF16 = (DefaultKernels(_V9, "flashmla_sparse", "trtllm"),)
_HOPPER_FP8 = (
    DefaultKernels(_V9, "flashmla_auto", "flashmla_kv"),
    DefaultKernels(_V11, "flashmla_kv", "flashmla_kv"),
)
_BLACKWELL_FP8 = (
    DefaultKernels(_V9, "flashmla_auto", "flashmla_kv"),
    DefaultKernels(_V10, "trtllm", "trtllm", forced=True),
    DefaultKernels(_V11, "trtllm", "trtllm"),
)
# 0.5.9 has no branch for ROCm and takes Hopper's kernels, which cannot run there: none is listed.
_ROCM = (DefaultKernels(_V10, "tilelang", "tilelang"), DefaultKernels(_V20, "triton", "triton"))


def default_kernels(device: Accelerator, kv_cache_dtype: str, version: Version) -> DefaultKernels | None:
    """The kernels taken for a DSA model when none are set; None where there is no usable default (NPU; ROCm in 0.5.9).

    Source: srt/server_args.py (0.5.9:1154, 0.5.10:1445, 0.5.13:1756), srt/arg_groups/overrides.py (0.5.23:601).
    """
    dtype = device.kv_auto if kv_cache_dtype == "auto" else kv_cache_dtype
    if device.platform == "rocm":
        rows: tuple[DefaultKernels, ...] = _ROCM
    elif device.sm_major is None:
        rows = ()
    elif device.sm_major >= 10:
        rows = _BLACKWELL_FP8 if dtype == "fp8_e4m3" else _BLACKWELL_BF16
    else:
        rows = _HOPPER_FP8 if dtype == "fp8_e4m3" else _HOPPER_BF16
    return next((row for row in reversed(rows) if row.since <= version), None)
