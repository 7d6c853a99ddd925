"""FlashMLA's sparse kernels as sglang calls them: with its padding of heads and its dequantising of the prefix.

Source: sglang 0.5.16 dsa_backend.py `forward_extend`, `_forward_flashmla_sparse`, `_forward_flashmla_sparse_q8kv8`,
`_forward_flashmla_kv`, `_compute_flashmla_metadata`.
Heads of a rank are padded on every call, in new zeros: to 64 on Hopper and 128 on Blackwell for the sparse kernel, to
64 or 128 for the other. What is done once a step for all layers (scheduler metadata) is not in the timed call.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import torch

from dsakernels.candidates.candidate import Call, KernelCandidate, RequiredPackage
from dsakernels.inputs import PAGE
from dsakernels.kv_layout import unpack
from dsakernels.operators.sparse_attention import SparseInputs
from dsakernels.shape import OperatorShape

_SGL_KERNEL = RequiredPackage("sgl_kernel.flash_mla", ("sglang-kernel", "sgl-kernel"), "0.3.21", "0.4.10")
"""0.4.10 came with sglang 0.5.23, where the kernels moved to sgl-flash-mla."""
_DEQUANTISE = RequiredPackage("sglang.kernels.ops.attention.dsa.dequant_k_cache", ("sglang",), "0.5.16")
_Q8 = RequiredPackage("sglang.jit_kernel.sparse_mla_q8kv8_prefill_sm90", ("sglang",), "0.5.16")
_Q8_TOLERANCE = 0.08
"""Against the reference over rounded inputs. What is left are the weights, rounded to fp8 (2^-4 of each, 2^-10 below 2^-6
of the largest): in exact arithmetic 1.9 % of the median head, 3.8 % of the worst of 3.3 million
(tests/q8_rounding.py); twice that, as other tolerances leave. One row missed of 2,048 is seen in 93 of 200 queries."""
_ROWS = (1 << 31) // 656
"""Rows that the dequantising kernel reaches: it counts bytes in 32 bits."""
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
    """In each call, as a layer does: dequantises the whole prefix of every sequence, or where no sequence has a prefix
    joins the two parts of the rows that it has just computed.
    """
    kernel, heads = _module().flash_mla_sparse_fwd, _sparse_heads(inputs)
    dequantise = importlib.import_module(_DEQUANTISE.module).dequantize_k_cache_paged
    cache = inputs.cache.view(torch.float8_e4m3fn).unsqueeze(1)
    selected = inputs.selected.unsqueeze(1)
    latent = inputs.layout.latent
    has_prefix = inputs.shape.kv_tokens > inputs.shape.q_tokens
    fresh = None if has_prefix else dequantise(cache, inputs.slots).split([latent, inputs.layout.rope], dim=-1)
    parts = None if fresh is None else [part.contiguous() for part in fresh]

    def call() -> torch.Tensor:
        rows = dequantise(cache, inputs.slots) if parts is None else torch.cat(parts, dim=-1)
        q = _padded(inputs.q, heads)
        out = kernel(q=q, kv=rows, indices=selected, sm_scale=inputs.scale, d_v=latent)[0]
        return _trimmed(out, inputs.shape.heads)

    return call


def _q8(inputs: SparseInputs) -> Call:
    """Queries and rows in fp8 with one scale of 1: rows are dequantised by group and rounded again, on every call.

    As many rows of zeros are appended as a query selects, where the kernel lets absent tokens point. Both roundings
    (2^-4 of a value) and that of the weights come on top of the cache's own: 6 % of the median head in exact arithmetic on
    random values, and 16 to 26 % of the worst of 32,768 (tests/q8_rounding.py). That worst grows with the heads looked at,
    which is why the verdict is held against `_q8_rounded`.
    """
    attend = importlib.import_module(_Q8.module).sparse_mla_q8kv8_prefill_fwd
    requantise = importlib.import_module(_DEQUANTISE.module).gather_dequant_requant_fp8_paged
    cast = importlib.import_module("sglang.kernels.ops.kvcache.cache_ops").concat_and_cast_q_fp8_pad
    shape, latent, (tokens, _, width) = inputs.shape, inputs.layout.latent, inputs.q.shape
    heads = -(-shape.heads // 64) * 64
    q = torch.zeros(tokens, heads, width, dtype=torch.float8_e4m3fn, device=inputs.q.device)
    one = torch.ones(1, dtype=torch.float32, device=inputs.q.device)
    cache = inputs.cache.view(torch.float8_e4m3fn).unsqueeze(1)
    selected = inputs.selected.unsqueeze(1)
    parts = torch.split(inputs.q, [latent, inputs.layout.rope], dim=-1)

    def call() -> torch.Tensor:
        cast(q, *parts, shape.heads)
        rows = requantise(cache, inputs.slots, extra_rows=inputs.selected.shape[1])
        out = attend(q=q, kv=rows, indices=selected, sm_scale=inputs.scale, q_scale=one, kv_scale=one, d_v=latent)[0]
        return _trimmed(out, shape.heads)

    return call


def _q8_rounded(inputs: SparseInputs) -> SparseInputs:
    """What `_q8` attends with: queries and dequantised rows at fp8's grid, as plain rows."""
    rows = unpack(inputs.cache, inputs.layout, torch.float32)
    fp8 = torch.float8_e4m3fn
    return replace(inputs, dtype="bf16", q=inputs.q.to(fp8).to(torch.bfloat16), cache=rows.to(fp8).to(torch.bfloat16))


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


def _limit(shape: OperatorShape) -> str | None:
    model = shape.dimensions
    if (model.latent, model.rope, model.index_topk) != (512, 64, 2048):
        return "only latent 512, rope 64, index_topk 2048"
    return None


def _limit_of_whole(shape: OperatorShape) -> str | None:
    return _limit(shape) or (None if shape.total_kv < _ROWS else f"reaches {_ROWS:,} cached tokens")


def _of(operator: str) -> tuple[KernelCandidate, ...]:
    where: dict[str, Any] = {"archs": _ARCHS, "limit": _limit, "gpu": True, "package": _SGL_KERNEL}
    return (
        KernelCandidate("flashmla_sparse", operator, "flash_mla_sparse_fwd", ("bf16",), _sparse, **where),
        KernelCandidate("flashmla_kv", operator, "flash_mla_with_kvcache", ("fp8",), _kv, **where),
    )


_WHOLE: dict[str, Any] = {"limit": _limit_of_whole, "gpu": True}
CANDIDATES = (
    *_of("sparse_prefill"),
    *_of("sparse_decode"),
    *_of("mtp_verify"),
    # a decode or verify step never dequantises the whole prefix
    KernelCandidate("flashmla_sparse_dequantise", "sparse_prefill", "dequantises the whole prefix, then flash_mla_sparse_fwd",
              ("fp8",), _dequantise_sparse, archs=_ARCHS, package=_DEQUANTISE, **_WHOLE),
    KernelCandidate("flashmla_sparse_q8", "sparse_prefill", "rounds queries and the whole prefix to fp8, then attends in fp8",
              ("fp8",), _q8, archs=("sm90",), package=_Q8, rounds=_q8_rounded, tolerance=_Q8_TOLERANCE, **_WHOLE),
)  # fmt: skip
