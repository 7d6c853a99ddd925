"""Sparse attention of other packages: flashinfer's trtllm-gen (Blackwell), tilelang, aiter (AMD).

Source: sglang 0.5.16 dsa_backend.py `_forward_trtllm`, `_forward_tilelang`, `_forward_aiter`.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from dsakernels.candidates.candidate import Call, Candidate, Package
from dsakernels.inputs import PAGE
from dsakernels.operators.sparse_prefill import SparseInputs
from dsakernels.shape import Shape

_FLASHINFER = Package("flashinfer", ("flashinfer-python",), "0.6.14")
_TILELANG = Package("sglang.kernels.ops.attention.dsa.tilelang_kernel", ("sglang",), "0.5.16")
_AITER = Package("aiter.mla", ("aiter", "amd-aiter"), "0.1")
_WORKSPACE = 128 << 20


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


def _limit(shape: Shape) -> str | None:
    return None if shape.dimensions.index_topk == 2048 else "only index_topk 2048"


def _of(operator: str) -> tuple[Candidate, ...]:
    blackwell: dict[str, Any] = {"archs": ("sm100", "sm103"), "package": _FLASHINFER}
    gpus: dict[str, Any] = {"package": _TILELANG, "limit": _limit, "gpu": True}
    return (
        Candidate("trtllm", operator, "flashinfer's trtllm-gen sparse MLA", ("bf16",), _trtllm, **blackwell),
        Candidate("tilelang", operator, "tilelang_sparse_fwd", ("bf16",), _tilelang, **gpus),
    )


CANDIDATES = (
    *_of("sparse_prefill"),
    *_of("sparse_decode"),
    *_of("mtp_verify"),
    *(
        Candidate("aiter", operator, "mla_decode_fwd", ("bf16",), _aiter, archs=("gfx942", "gfx950"), package=_AITER)
        for operator in ("sparse_decode", "mtp_verify")
    ),
)
