"""FlashAttention 3 as sglang calls it on Hopper: MLA over a page table of single tokens, and varlen MHA.

Source: sglang 0.5.16 dsa_backend.py `_forward_fa3`, `_forward_standard_mha`; kernels from sglang-kernel.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from dsakernels.candidates.candidate import Call, Candidate, Package
from dsakernels.operators.dense_prefill import DenseInputs
from dsakernels.operators.sparse_prefill import SparseInputs

_PACKAGE = Package("sgl_kernel.flash_attn", ("sglang-kernel", "sgl-kernel"), "0.3.21")
_HOPPER: dict[str, Any] = {"archs": ("sm90",), "package": _PACKAGE, "gpu": True}


def _mla(inputs: SparseInputs) -> Call:
    """The selection as a page table with pages of one token; -1 stands last, behind the sequence's length."""
    attend = importlib.import_module(_PACKAGE.module).flash_attn_with_kvcache
    device, latent, total = inputs.q.device, inputs.layout.latent, inputs.shape.total_q
    order = (inputs.indices < 0).int().argsort(dim=1, stable=True)
    table = inputs.indices.gather(1, order).clamp(min=0)
    lengths = (inputs.indices >= 0).sum(1).int()
    starts = torch.arange(total + 1, dtype=torch.int32, device=device)
    ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    pool = inputs.cache.unsqueeze(1)
    keys, values = (
        pool[:, :, latent:].view(-1, 1, 1, pool.shape[2] - latent),
        pool[:, :, :latent].view(-1, 1, 1, latent),
    )
    rope, absorbed = (part.contiguous() for part in (inputs.q[:, :, latent:], inputs.q[:, :, :latent]))

    def call() -> torch.Tensor:
        answer: torch.Tensor = attend(
            q=rope,
            k_cache=keys,
            v_cache=values,
            qv=absorbed,
            page_table=table,
            cache_seqlens=lengths,
            cu_seqlens_q=starts,
            cu_seqlens_k_new=ends,
            max_seqlen_q=1,
            softmax_scale=inputs.scale,
            causal=True,
            num_splits=0,
        )
        return answer

    return call


def _mha(inputs: DenseInputs) -> Call:
    """Every sequence's queries against its whole K and V in one launch."""
    attend = importlib.import_module(_PACKAGE.module).flash_attn_varlen_func
    shape = inputs.shape
    counts = torch.arange(shape.batch + 1, dtype=torch.int32, device=inputs.q.device)

    def call() -> torch.Tensor:
        answer: torch.Tensor = attend(
            q=inputs.q,
            k=inputs.k,
            v=inputs.v,
            cu_seqlens_q=counts * shape.q_tokens,
            cu_seqlens_k=counts * shape.kv_tokens,
            max_seqlen_q=shape.q_tokens,
            max_seqlen_k=shape.kv_tokens,
            softmax_scale=inputs.scale,
            causal=True,
        )
        return answer

    return call


CANDIDATES = (
    *(
        Candidate("fa3", operator, "flash_attn_with_kvcache, pages of one token", ("bf16",), _mla, **_HOPPER)
        for operator in ("sparse_prefill", "sparse_decode", "mtp_verify")
    ),
    Candidate("fa3_varlen", "dense_prefill", "flash_attn_varlen_func", ("bf16",), _mha, **_HOPPER),
)
