"""Indexer logits in Triton: a program takes 64 keys and 4 queries of one sequence, head by head the products.

logit[t, s] = scale[s] · Σ_i weight[t, i] · relu(q[t, i] · k[s])
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _logits(
    q, k, scale, weights, slots, out, new, kept,
    I: tl.constexpr, E: tl.constexpr, BLOCK: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Keys of one sequence are read once for QUERIES queries; heads are the rows of each product."""
    sequence, turn, keys = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    if keys * BLOCK >= kept - new + (turn + 1) * QUERIES:
        return  # the last of these queries does not see the first of these keys
    place = keys * BLOCK + tl.arange(0, BLOCK)
    inside = place < kept
    e, i = tl.arange(0, E), tl.arange(0, I)
    row = tl.load(slots + sequence * kept + place, mask=inside, other=0).to(tl.int64)
    key = tl.load(k + row[:, None] * E + e[None, :], mask=inside[:, None], other=0.0)
    factor = tl.load(scale + row, mask=inside, other=0.0)
    for offset in range(QUERIES):
        query = turn * QUERIES + offset
        if query < new:
            token = sequence * new + query
            heads = tl.load(q + (token * I + i)[:, None] * E + e[None, :])
            weight = tl.load(weights + token * I + i)
            products = tl.maximum(tl.dot(heads, tl.trans(key)), 0.0)
            logits = tl.sum(products * weight[:, None], 0) * factor
            tl.store(out + token * kept + place, logits, mask=inside)


def logits(
    q: torch.Tensor, k: torch.Tensor, scale: torch.Tensor, weights: torch.Tensor, slots: torch.Tensor, *, batch: int
) -> torch.Tensor:
    """Take q [T, I, E], k [N, E], scale [N], weights [T, I], slots [B · L] (row of each token) → [T, L] float32.

    Columns that a query does not see may be left as they are.
    """
    tokens, heads, width = q.shape
    new, kept = tokens // batch, slots.numel() // batch
    out = torch.empty(tokens, kept, dtype=torch.float32, device=q.device)
    queries = min(4, new)
    grid = (batch, triton.cdiv(new, queries), triton.cdiv(kept, 64))
    _logits[grid](q, k, scale, weights, slots, out, new, kept, I=heads, E=width, BLOCK=64, QUERIES=queries)
    return out
