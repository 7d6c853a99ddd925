"""The kernels that the runtime takes when none are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dsabench.model.hardware import Accelerator
from dsabench.sglang.versions import Version

KvDtype = Literal["bfloat16", "fp8_e4m3"]


def kv_auto(device: Accelerator) -> KvDtype:
    """What `kv_cache_dtype: auto` becomes for a DSA model (0.5.23 srt/arg_groups/overrides.py:530)."""
    return "fp8_e4m3" if device.capability is not None and device.capability[0] >= 10 else "bfloat16"


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
    dtype = kv_auto(device) if kv_cache_dtype == "auto" else kv_cache_dtype
    if device.platform == "rocm":
        rows: tuple[DefaultKernels, ...] = _ROCM
    elif device.sm_major is None:
        rows = ()
    elif device.sm_major >= 10:
        rows = _BLACKWELL_FP8 if dtype == "fp8_e4m3" else _BLACKWELL_BF16
    else:
        rows = _HOPPER_FP8 if dtype == "fp8_e4m3" else _HOPPER_BF16
    return next((row for row in reversed(rows) if row.since <= version), None)
