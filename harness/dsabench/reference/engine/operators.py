"""What a backend chooses: the code behind attention and indexer, plain PyTorch or the Triton kernels of `dsakernels`."""

from __future__ import annotations

import torch
from torch.nn import functional

from dsabench.reference.engine.batch import Path
from dsabench.reference.engine.sizes import ModelSize
from dsakernels import attention, indexer
from dsakernels.kv_layout import PackedLayout

_LEAST_HEADS = 16
"""Rows of the smallest matrix product that a Triton kernel makes."""


def attend(path: Path, q: torch.Tensor, rows: torch.Tensor, indices: torch.Tensor, size: ModelSize) -> torch.Tensor:
    """Sparse attention: q [T, H, D], rows [N, D] or packed [N, row_bytes], indices [T, K] into them → [T, H, C]."""
    scale = size.attention_scale
    if path == "flashmla_kv":
        layout = PackedLayout(size.latent, size.rope)
        return attention.flashmla_kv(q, rows, indices, layout=layout, scale=scale)
    if path != "triton":
        return attention.flashmla_sparse(q, rows, indices, latent=size.latent, scale=scale)
    from dsakernels.triton_kernels import sparse_attention as kernels  # noqa: PLC0415 (Triton may not be installed)

    if rows.dtype not in (torch.uint8, q.dtype):  # a model in float32: a product is of one type
        rows = rows.to(q.dtype)
    processors = torch.cuda.get_device_properties().multi_processor_count if q.is_cuda else 1
    parts = kernels.parts_for(q.shape[0], q.shape[1], indices.shape[1], processors)
    return kernels.attend(q, rows, indices.to(torch.int32), latent=size.latent, scale=scale, parts=parts)


def logits(path: Path, q: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Indexer logits of B sequences with T queries in all: q [T, I, E], weights [T, I], keys [B, L, E] → [T, L] float32.

    Each sequence has the same number of queries, 1 or its last; what lies behind a query's own token is not defined.
    """
    batch, length, width = keys.shape
    if path != "triton":
        return indexer.batched_logits(q, weights, keys) if len(q) == batch else indexer.logits(q, weights, keys[0])
    from dsakernels.triton_kernels import indexer as kernels  # noqa: PLC0415 (Triton may not be installed)

    missing = max(0, _LEAST_HEADS - q.shape[1])  # heads of weight 0 add nothing
    q, weights = functional.pad(q, (0, 0, 0, missing)), functional.pad(weights, (0, missing))
    slots = torch.arange(batch * length, dtype=torch.int32, device=q.device)
    scale = torch.ones(batch * length, device=q.device)
    return kernels.logits(q, keys.reshape(-1, width), scale, weights, slots, batch=batch)
