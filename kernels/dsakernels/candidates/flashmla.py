"""FlashMLA's two sparse kernels as sglang calls them: with its padding of heads and its dequantising of the prefix.

Source: sglang 0.5.16 dsa_backend.py `_forward_flashmla_sparse`, `_forward_flashmla_kv`, `_compute_flashmla_metadata`.
Heads of a rank are padded on every call, in new zeros: to 64 on Hopper and 128 on Blackwell for the sparse kernel, to
64 or 128 for the other. What is done once a step for all layers (scheduler metadata) is not in the timed call.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from dsakernels.candidates.candidate import Call, Candidate, Package
from dsakernels.inputs import PAGE
from dsakernels.operators.sparse_prefill import SparseInputs
from dsakernels.shape import Shape

_SGL_KERNEL = Package("sgl_kernel.flash_mla", ("sglang-kernel", "sgl-kernel"), "0.3.21", "0.4.10")
"""0.4.10 came with sglang 0.5.23, where the kernels moved to sgl-flash-mla."""
_DEQUANTISE = Package("sglang.kernels.ops.attention.dsa.dequant_k_cache", ("sglang",), "0.5.16")
_ARCHS = ("sm90", "sm100", "sm103")


def _module() -> Any:
    return importlib.import_module("sgl_kernel.flash_mla")


def _sparse(inputs: SparseInputs) -> Call:
    """Over bfloat16 rows of the pool."""
    kernel, rows, indices = _module().flash_mla_sparse_fwd, inputs.cache.unsqueeze(1), inputs.indices.unsqueeze(1)
    heads = _sparse_heads(inputs)

    def call() -> torch.Tensor:
        q = _padded(inputs.q, heads)
        out = kernel(q=q, kv=rows, indices=indices, sm_scale=inputs.scale, d_v=inputs.layout.latent)[0]
        return _trimmed(out, inputs.shape.heads)

    return call


def _dequantise_sparse(inputs: SparseInputs) -> Call:
    """Dequantises the whole prefix of every sequence in each call, as a layer does."""
    kernel, heads = _module().flash_mla_sparse_fwd, _sparse_heads(inputs)
    dequantise = importlib.import_module(_DEQUANTISE.module).dequantize_k_cache_paged
    cache = inputs.cache.view(torch.float8_e4m3fn).unsqueeze(1)
    selected = inputs.selected.unsqueeze(1)

    def call() -> torch.Tensor:
        rows = dequantise(cache, inputs.slots)
        q = _padded(inputs.q, heads)
        out = kernel(q=q, kv=rows, indices=selected, sm_scale=inputs.scale, d_v=inputs.layout.latent)[0]
        return _trimmed(out, inputs.shape.heads)

    return call


def _kv(inputs: SparseInputs) -> Call:
    """Each query is a sequence of its own, as in sglang; rows are dequantised inside."""
    module, shape = _module(), inputs.shape
    heads = 64 if shape.heads <= 64 else 128
    k = inputs.indices.shape[1]
    seen = (inputs.indices >= 0).sum(1).int()
    metadata, splits = module.get_mla_metadata(
        cache_seqlens=seen,
        num_q_tokens_per_head_k=heads,
        num_heads_k=1,
        num_heads_q=heads,
        is_fp8_kvcache=True,
        topk=k,
    )
    cache = inputs.cache.view(torch.float8_e4m3fn).view(-1, PAGE, 1, inputs.layout.row_bytes)
    indices = inputs.indices.unsqueeze(1)
    no_table = torch.empty(shape.total_q, 0, dtype=torch.int32, device=inputs.q.device)

    def call() -> torch.Tensor:
        out, _ = module.flash_mla_with_kvcache(
            q=_padded(inputs.q, heads).unsqueeze(1),
            k_cache=cache,
            cache_seqlens=seen,
            head_dim_v=inputs.layout.latent,
            tile_scheduler_metadata=metadata,
            num_splits=splits,
            softmax_scale=inputs.scale,
            indices=indices,
            block_table=no_table,
            is_fp8_kvcache=True,
        )
        return _trimmed(out.view(shape.total_q, heads, -1), shape.heads)

    return call


def _sparse_heads(inputs: SparseInputs) -> int:
    major = torch.cuda.get_device_capability()[0]
    multiple = 128 if major >= 10 else 64
    return -(-inputs.shape.heads // multiple) * multiple


def _padded(q: torch.Tensor, heads: int) -> torch.Tensor:
    if q.shape[1] == heads:
        return q
    wide = q.new_zeros(q.shape[0], heads, q.shape[2])
    wide[:, : q.shape[1]] = q
    return wide


def _trimmed(out: torch.Tensor, heads: int) -> torch.Tensor:
    return out if out.shape[1] == heads else out[:, :heads]


def _limit(shape: Shape) -> str | None:
    model = shape.dimensions
    if (model.latent, model.rope, model.index_topk) != (512, 64, 2048):
        return "only latent 512, rope 64, index_topk 2048"
    return None


def _of(operator: str) -> tuple[Candidate, ...]:
    where: dict[str, Any] = {"archs": _ARCHS, "limit": _limit, "gpu": True}
    both = "dequantises the whole prefix, then flash_mla_sparse_fwd"
    return (
        Candidate("flashmla_sparse", operator, "flash_mla_sparse_fwd", ("bf16",), _sparse, package=_SGL_KERNEL, **where),
        Candidate("flashmla_sparse_dequantise", operator, both, ("fp8",), _dequantise_sparse,
                  package=_DEQUANTISE, **where),
        Candidate("flashmla_kv", operator, "flash_mla_with_kvcache", ("fp8",), _kv, package=_SGL_KERNEL, **where),
    )  # fmt: skip


CANDIDATES = (*_of("sparse_prefill"), *_of("sparse_decode"), *_of("mtp_verify"))
