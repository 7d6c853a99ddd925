"""Indexer logits and top-k in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsakernels import indexer
from dsakernels.candidates.candidate import Call, KernelCandidate, RequiredPackage
from dsakernels.operators.indexer import IndexerInputs
from dsakernels.operators.topk_select import TopkInputs


def _plain(inputs: IndexerInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Q and keys in bfloat16: fp8 values are exact in it; scales are applied to the logits."""
    return inputs.q.to(torch.bfloat16), inputs.k.to(torch.bfloat16)


def _by_head(inputs: IndexerInputs) -> Call:
    """Sequence by sequence, head by head."""
    shape = inputs.shape

    def call() -> torch.Tensor:
        q, k = _plain(inputs)
        out = torch.empty(shape.total_q, shape.kv_tokens, device=q.device)
        for s in range(shape.batch):
            new = slice(s * shape.q_tokens, (s + 1) * shape.q_tokens)
            kept = slice(s * shape.kv_tokens, (s + 1) * shape.kv_tokens)
            out[new] = indexer.logits(q[new], inputs.weights[new], k[kept]).mul_(inputs.scale[kept])
        return out

    return call


def _all_heads(inputs: IndexerInputs) -> Call:
    """Products of all heads at once, then their weighted sum."""
    shape = inputs.shape
    weights = inputs.weights.view(shape.batch, shape.q_tokens, 1, -1)
    scale = inputs.scale.view(shape.batch, 1, -1)

    def call() -> torch.Tensor:
        q, k = _plain(inputs)
        keys = k.view(shape.batch, shape.kv_tokens, -1).transpose(1, 2)
        products = torch.bmm(q.view(shape.batch, -1, q.shape[2]), keys).relu_().float()
        products = products.view(shape.batch, shape.q_tokens, -1, shape.kv_tokens)
        return (weights @ products).squeeze(2).mul_(scale).view(shape.total_q, -1)

    return call


def _select(inputs: TopkInputs) -> Call:
    """`indexer.select` (numpy's partition on a CPU), then the look-up of pool rows."""
    to_slot = _transform(inputs)
    lengths = inputs.lengths.long()
    return lambda: to_slot(indexer.select(inputs.logits.clone(), lengths, inputs.k))


def _torch_topk(inputs: TopkInputs) -> Call:
    """torch.topk of the masked logits, then the look-up of pool rows."""
    to_slot = _transform(inputs)
    positions = torch.arange(inputs.shape.kv_tokens, device=inputs.logits.device)
    k = min(inputs.k, inputs.shape.kv_tokens)

    def call() -> torch.Tensor:
        hidden = positions >= inputs.lengths.unsqueeze(1)
        best = inputs.logits.masked_fill(hidden, -torch.inf).topk(k, dim=1, sorted=False)
        chosen = best.indices.masked_fill_(best.values == -torch.inf, -1)
        return to_slot(torch.nn.functional.pad(chosen, (0, inputs.k - k), value=-1))

    return call


def _transform(inputs: TopkInputs) -> Callable[[torch.Tensor], torch.Tensor]:
    """Positions in a sequence [T, K] to rows of the pool, -1 kept."""
    sequences = torch.arange(inputs.shape.batch, device=inputs.slots.device) * inputs.shape.kv_tokens
    first = sequences.repeat_interleave(inputs.shape.q_tokens).unsqueeze(1)

    def to_slot(chosen: torch.Tensor) -> torch.Tensor:
        return inputs.slots[chosen.clamp(min=0) + first].masked_fill_(chosen < 0, -1)

    return to_slot


def _logits(operator: str) -> tuple[KernelCandidate, ...]:
    return (
        KernelCandidate(
            "torch_by_head", operator, "head by head, so that products stay in cache", ("bf16", "fp8"), _by_head
        ),
        KernelCandidate(
            "torch_all_heads",
            operator,
            "all heads in one product",
            ("bf16", "fp8"),
            _all_heads,
            limit=lambda s: (
                None if s.total_q * s.kv_tokens * s.dimensions.index_heads <= 1 << 31 else "too many products"
            ),
        ),
    )


CANDIDATES = (
    *_logits("indexer_ragged"),
    *_logits("indexer_paged"),
    KernelCandidate(
        "torch_select",
        "topk_select",
        "sortable integers, partition (CPU) or topk",
        ("bf16",),
        _select,
        package=RequiredPackage("numpy", ("numpy",), "1.17"),
        captures=False,
    ),
    KernelCandidate("torch_topk", "topk_select", "torch.topk", ("bf16",), _torch_topk),
)
