"""Attention kernels of other packages: FlashAttention 3 (Hopper), trtllm-gen (Blackwell), tilelang, aiter (AMD).

Source: sglang 0.5.16 dsa_backend.py `_forward_fa3`, `_forward_standard_mha`, `_forward_trtllm`, `_forward_tilelang`,
`_forward_aiter`.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from dsakernels.candidates.candidate import Call, KernelCandidate, RequiredPackage, only_topk_2048
from dsakernels.inputs import PAGE
from dsakernels.operators.dense_prefill import DenseInputs
from dsakernels.operators.sparse_attention import SparseInputs

_FA3 = RequiredPackage("sgl_kernel.flash_attn", ("sglang-kernel", "sgl-kernel"), "0.3.21")
_HOPPER: dict[str, Any] = {"archs": ("sm90",), "package": _FA3, "gpu": True}
_FLASHINFER = RequiredPackage("flashinfer", ("flashinfer-python",), "0.6.14")
_TILELANG = RequiredPackage("sglang.kernels.ops.attention.dsa.tilelang_kernel", ("sglang",), "0.5.16")
_AITER = RequiredPackage("aiter.mla", ("aiter", "amd-aiter"), "0.1")
_WORKSPACE = 128 << 20


def _fa3(inputs: SparseInputs) -> Call:
    """The selection as a page table with pages of one token; -1 stands last, behind the sequence's length."""
    attend = importlib.import_module(_FA3.module).flash_attn_with_kvcache
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


def _fa3_varlen(inputs: DenseInputs) -> Call:
    """Every sequence's queries against its whole K and V in one launch."""
    attend = importlib.import_module(_FA3.module).flash_attn_varlen_func
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


def _trtllm(inputs: SparseInputs) -> Call:
    decode = importlib.import_module("flashinfer").decode.trtllm_batch_decode_with_kv_cache_mla
    shape, model = inputs.shape, inputs.shape.dimensions
    workspace = torch.zeros(_WORKSPACE, dtype=torch.uint8, device=inputs.q.device)
    cache = inputs.cache.view(-1, 1, PAGE, model.width)
    first = shape.kv_tokens - shape.q_tokens + 1
    lengths = torch.arange(first, shape.kv_tokens + 1, device=inputs.q.device).repeat(shape.batch).int()
    tables = inputs.indices.unsqueeze(1)

    def call() -> torch.Tensor:
        answer: torch.Tensor = decode(
            query=inputs.q.unsqueeze(1),
            kv_cache=cache,
            workspace_buffer=workspace,
            qk_nope_head_dim=model.nope,
            kv_lora_rank=model.latent,
            qk_rope_head_dim=model.rope,
            block_tables=tables,
            seq_lens=lengths,
            max_seq_len=shape.kv_tokens,
            sparse_mla_top_k=model.index_topk,
            bmm1_scale=inputs.scale,
            backend="trtllm-gen",
        )
        return answer.view(shape.total_q, shape.heads, -1)

    return call


def _tilelang(inputs: SparseInputs) -> Call:
    kernel = importlib.import_module(_TILELANG.module).tilelang_sparse_fwd
    rows, indices = inputs.cache.unsqueeze(1), inputs.indices.unsqueeze(1)

    def call() -> torch.Tensor:
        out: torch.Tensor = kernel(
            q=inputs.q, kv=rows, indices=indices, sm_scale=inputs.scale, d_v=inputs.layout.latent
        )
        return out.view(inputs.shape.total_q, inputs.shape.heads, -1)

    return call


def _aiter(inputs: SparseInputs) -> Call:
    """Pages of one token, the selection as its list of pages; heads repeated to 16 where a rank has fewer."""
    decode = importlib.import_module("aiter.mla").mla_decode_fwd
    shape, device = inputs.shape, inputs.q.device
    present = inputs.indices >= 0
    pages = inputs.indices[present]
    counts = torch.nn.functional.pad(present.sum(1).cumsum(0), (1, 0)).int()
    starts = torch.arange(shape.total_q + 1, dtype=torch.int32, device=device)
    last = torch.ones(shape.total_q, dtype=torch.int32, device=device)
    repeat = max(1, 16 // shape.heads)
    cache = inputs.cache.view(-1, 1, 1, inputs.cache.shape[1])

    def call() -> torch.Tensor:
        q = inputs.q.repeat_interleave(repeat, 1) if repeat > 1 else inputs.q
        out = torch.empty(shape.total_q, q.shape[1], inputs.layout.latent, dtype=q.dtype, device=device)
        decode(q, cache, out, starts, counts, pages, last, 1, sm_scale=inputs.scale, logit_cap=0.0)
        return out[:, ::repeat] if repeat > 1 else out

    return call


def _of(operator: str) -> tuple[KernelCandidate, ...]:
    blackwell: dict[str, Any] = {"archs": ("sm100", "sm103"), "package": _FLASHINFER}
    gpus: dict[str, Any] = {"package": _TILELANG, "limit": only_topk_2048, "gpu": True}
    return (
        KernelCandidate("trtllm", operator, "flashinfer's trtllm-gen sparse MLA", ("bf16",), _trtllm, **blackwell),
        KernelCandidate("tilelang", operator, "tilelang_sparse_fwd", ("bf16",), _tilelang, **gpus),
    )


CANDIDATES = (
    *(
        KernelCandidate("fa3", operator, "flash_attn_with_kvcache, pages of one token", ("bf16",), _fa3, **_HOPPER)
        for operator in ("sparse_prefill", "sparse_decode", "mtp_verify")
    ),
    KernelCandidate("fa3_varlen", "dense_prefill", "flash_attn_varlen_func", ("bf16",), _fa3_varlen, **_HOPPER),
    *_of("sparse_prefill"),
    *_of("sparse_decode"),
    *_of("mtp_verify"),
    *(
        KernelCandidate(
            "aiter", operator, "mla_decode_fwd", ("bf16",), _aiter, archs=("gfx942", "gfx950"), package=_AITER
        )
        for operator in ("sparse_decode", "mtp_verify")
    ),
)
