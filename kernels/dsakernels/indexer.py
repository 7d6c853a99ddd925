"""Lightning-indexer logits: how much each cached token matters to a query, before the causal mask.

    logit[t, s] = Σ_i weight[t, i] · relu(q[t, i] · k[s])

DeepSeek-V3.2-Exp report, equation 1. One key per token is shared by all I indexer heads. The weights carry the scales
I^-½ and head_dim^-½. The two functions are the two shapes of the same operator: one sequence with many queries
(prefill; DeepGEMM's fp8_mqa_logits), and one query for each of many sequences (decode; fp8_paged_mqa_logits).
"""

from __future__ import annotations

import torch


def logits(q: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Take q [T, I, E], weights [T, I] float32, keys [L, E] → logits [T, L] float32.

    Accumulates head by head: the [T, I, L] products would not stay in cache, nor fit for a long prefix.
    """
    transposed = keys.t()
    total = torch.zeros(q.shape[0], keys.shape[0], dtype=torch.float32, device=q.device)
    for head in range(q.shape[1]):
        products = (q[:, head] @ transposed).relu_()
        total.addcmul_(products, weights[:, head : head + 1])
    return total


def batched_logits(q: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Take q [B, I, E], weights [B, I] float32, keys [B, L, E] → logits [B, L] float32."""
    products = torch.bmm(q, keys.transpose(1, 2)).relu_()
    return torch.bmm(weights.unsqueeze(1), products.float()).squeeze(1)
