"""Attention in plain PyTorch: the reference runtime's paths, and others that a CPU may do faster."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from dsakernels import attention
from dsakernels.candidates.candidate import Call, KernelCandidate
from dsakernels.kv_layout import unpack
from dsakernels.operators.dense_prefill import DenseInputs
from dsakernels.operators.sparse_attention import SparseInputs

_PAIRS = 1 << 24


def _rounded(out: torch.Tensor) -> torch.Tensor:
    """To the bfloat16 that the layer hands on; scores and sums stay in float32, as in every kernel on a GPU."""
    return out.to(torch.bfloat16)


def _flashmla_sparse(inputs: SparseInputs) -> Call:
    """Over bfloat16 rows; an fp8 cache is dequantised as a whole first."""
    latent, scale, indices = inputs.layout.latent, inputs.scale, inputs.indices.long()
    slots, selected = inputs.slots.long(), inputs.selected.long()

    def whole() -> torch.Tensor:
        return _rounded(attention.flashmla_sparse(inputs.q.float(), inputs.cache, indices, latent=latent, scale=scale))

    def dequantised() -> torch.Tensor:
        rows = unpack(inputs.cache.index_select(0, slots), inputs.layout, torch.bfloat16)
        return _rounded(attention.flashmla_sparse(inputs.q.float(), rows, selected, latent=latent, scale=scale))

    return whole if inputs.dtype == "bf16" else dequantised


def _flashmla_kv(inputs: SparseInputs) -> Call:
    """Dequantises what each query selected."""
    indices = inputs.indices.long()
    layout, scale = inputs.layout, inputs.scale
    return lambda: _rounded(attention.flashmla_kv(inputs.q.float(), inputs.cache, indices, layout=layout, scale=scale))


def _masked_dense(inputs: SparseInputs) -> Call:
    """Scores of all tokens of a sequence, masked to the selection: no gather, more products."""
    shape, slots = inputs.shape, inputs.slots.long()
    first = torch.arange(shape.batch, device=inputs.q.device).repeat_interleave(shape.q_tokens) * shape.kv_tokens
    local = torch.where(inputs.selected >= 0, inputs.selected - first.unsqueeze(1), shape.kv_tokens).long()

    def call() -> torch.Tensor:
        rows = inputs.cache.index_select(0, slots)
        keys = rows.float() if inputs.dtype == "bf16" else unpack(rows, inputs.layout, torch.float32)
        hidden = torch.ones(shape.total_q, shape.kv_tokens + 1, dtype=torch.bool, device=keys.device)
        hidden.scatter_(1, local, value=False)
        per_sequence = (shape.batch, shape.q_tokens, shape.heads, -1)
        keys = keys.view(shape.batch, shape.kv_tokens, -1)
        q = (inputs.q.float() * inputs.scale).view(shape.batch, shape.q_tokens * shape.heads, -1)
        scores = torch.bmm(q, keys.transpose(1, 2)).view(per_sequence)
        scores.masked_fill_(hidden[:, :-1].view(shape.batch, shape.q_tokens, 1, -1), -torch.inf)
        weights = scores.softmax(-1).view(shape.batch, shape.q_tokens * shape.heads, -1)
        return _rounded(torch.bmm(weights, keys[:, :, : inputs.layout.latent])).view(shape.total_q, shape.heads, -1)

    return call


def _gathered_sdpa(inputs: SparseInputs) -> Call:
    """Gathers the selected rows of every query, then torch's scaled_dot_product_attention with heads as queries."""
    indices = inputs.indices.long()
    absent = indices < 0
    flat = indices.clamp(min=0).flatten()
    mask = torch.zeros(absent.shape, dtype=torch.bfloat16, device=absent.device).masked_fill_(absent, -torch.inf)

    def call() -> torch.Tensor:
        rows = inputs.cache.index_select(0, flat)
        keys = rows if inputs.dtype == "bf16" else unpack(rows, inputs.layout, torch.bfloat16)
        keys = keys.view(indices.shape[0], 1, indices.shape[1], -1)
        values = keys[..., : inputs.layout.latent]
        bias = mask.view(len(mask), 1, 1, -1)
        out = scaled_dot_product_attention(inputs.q.unsqueeze(1), keys, values, attn_mask=bias, scale=inputs.scale)
        return out.squeeze(1)

    return call


def _mha(inputs: DenseInputs) -> Call:
    """Sequence by sequence in blocks of queries."""
    shape = inputs.shape

    def call() -> torch.Tensor:
        out = torch.empty(shape.total_q, shape.heads, inputs.v.shape[2], dtype=inputs.q.dtype, device=inputs.q.device)
        for s in range(shape.batch):
            q, k, v = _sequence(inputs, s)
            answer = attention.mha(q.float(), k.float(), v.float(), scale=inputs.scale)
            out[s * shape.q_tokens : (s + 1) * shape.q_tokens] = answer.transpose(0, 1)
        return out

    return call


def _sdpa(inputs: DenseInputs) -> Call:
    """Torch's scaled_dot_product_attention with a causal mask aligned to the end, all sequences at once."""
    shape = inputs.shape
    past = shape.kv_tokens - shape.q_tokens
    seen = torch.ones(shape.q_tokens, shape.kv_tokens, dtype=torch.bool, device=inputs.q.device).tril_(past)
    q, k, v = (t.view(shape.batch, -1, *t.shape[1:]).transpose(1, 2) for t in (inputs.q, inputs.k, inputs.v))

    def call() -> torch.Tensor:
        mask = None if past == 0 else seen
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=past == 0, scale=inputs.scale)
        return out.transpose(1, 2).reshape(shape.total_q, shape.heads, -1)

    return call


def _sequence(inputs: DenseInputs, s: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    new, kept = inputs.shape.q_tokens, inputs.shape.kv_tokens
    q = inputs.q[s * new : (s + 1) * new].transpose(0, 1)
    k, v = (tensor[s * kept : (s + 1) * kept].transpose(0, 1) for tensor in (inputs.k, inputs.v))
    return q, k, v


def _sparse(operator: str) -> tuple[KernelCandidate, ...]:
    return (
        KernelCandidate("torch_flashmla_sparse", operator, "gather and attend; fp8 dequantised as a whole first",
                  ("bf16", "fp8"), _flashmla_sparse, captures=False),
        KernelCandidate("torch_flashmla_kv", operator, "gather packed rows, dequantise those, attend", ("fp8",), _flashmla_kv,
                  captures=False),
        KernelCandidate("torch_masked_dense", operator, "all scores, masked to the selection", ("bf16", "fp8"), _masked_dense,
                  limit=lambda s: None if s.total_q * s.kv_tokens * s.heads <= _PAIRS * 16 else "too many scores"),
        KernelCandidate("torch_gathered_sdpa", operator, "gather, then scaled_dot_product_attention", ("bf16", "fp8"),
                  _gathered_sdpa,
                  limit=lambda s: None if s.total_q * s.dimensions.index_topk <= _PAIRS else "too many rows to gather"),
    )  # fmt: skip


CANDIDATES = (
    *_sparse("sparse_prefill"),
    *_sparse("sparse_decode"),
    *_sparse("mtp_verify"),
    KernelCandidate("torch_mha", "dense_prefill", "blocks of queries, softmax of the scores", ("bf16",), _mha),
    KernelCandidate(
        "torch_sdpa",
        "dense_prefill",
        "scaled_dot_product_attention",
        ("bf16",),
        _sdpa,
        limit=lambda s: None if s.batch * s.q_tokens * s.kv_tokens <= 1 << 29 else "too large a mask",
    ),
)
