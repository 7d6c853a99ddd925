"""Every candidate, by where it comes from."""

from __future__ import annotations

from dsakernels.candidates import (
    deep_gemm,
    flash_attention,
    flashmla,
    other_attention,
    sglang_cache,
    sglang_hisparse,
    topk_kernels,
    torch_attention,
    torch_cache,
    torch_indexer,
    torch_projections,
    triton_ours,
)
from dsakernels.candidates.candidate import Candidate

CANDIDATES: tuple[Candidate, ...] = (
    *flashmla.CANDIDATES,
    *flash_attention.CANDIDATES,
    *other_attention.CANDIDATES,
    *deep_gemm.CANDIDATES,
    *topk_kernels.CANDIDATES,
    *sglang_cache.CANDIDATES,
    *sglang_hisparse.CANDIDATES,
    *triton_ours.CANDIDATES,
    *torch_attention.CANDIDATES,
    *torch_indexer.CANDIDATES,
    *torch_cache.CANDIDATES,
    *torch_projections.CANDIDATES,
)
