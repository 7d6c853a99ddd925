"""Every candidate, by where it comes from."""

from __future__ import annotations

from dsakernels.candidates import (
    deep_gemm,
    flashmla,
    other_attention,
    sglang_kernels,
    topk_kernels,
    torch_attention,
    torch_cache,
    torch_indexer,
    triton_ours,
)
from dsakernels.candidates.candidate import KernelCandidate

CANDIDATES: tuple[KernelCandidate, ...] = (
    *flashmla.CANDIDATES,
    *other_attention.CANDIDATES,
    *deep_gemm.CANDIDATES,
    *topk_kernels.CANDIDATES,
    *sglang_kernels.CANDIDATES,
    *triton_ours.CANDIDATES,
    *torch_attention.CANDIDATES,
    *torch_indexer.CANDIDATES,
    *torch_cache.CANDIDATES,
)
