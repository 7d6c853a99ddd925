"""The lightning indexer: how much each cached token matters to a query, and the K that matter most.

    logit[t, s] = Σ_i weight[t, i] · relu(q[t, i] · k[s])

DeepSeek-V3.2-Exp report, equation 1. One key per token is shared by all I indexer heads. The weights carry the scales
I^-½ and head_dim^-½. `logits` and `batched_logits` are the two shapes of the same operator: one sequence with many queries
(prefill; DeepGEMM's fp8_mqa_logits), and one query for each of many sequences (decode; fp8_paged_mqa_logits).

`select` is causal. Of equal logits (ReLU makes zeros) the later tokens win, so that a selection does not depend on how
queries were batched. Indices come in no particular order, as the attention that follows does not depend on it; -1 marks a
place for which there was no token (queries that see fewer than K).
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


def select(logits: torch.Tensor, lengths: torch.Tensor, k: int) -> torch.Tensor:
    """Logits [T, L] float32 and visible lengths [T] int64 (1 … L) → indices [T, K] int64.

    Query t sees columns 0 … lengths[t] - 1; logits of the others are overwritten. On a CPU numpy partitions, whose AVX
    selection is about 10 times as fast as `torch.topk`.
    """
    width = logits.shape[1]
    if width <= k:
        return everything(lengths, k)
    shortest = int(lengths.min())
    columns = torch.arange(width, device=logits.device)
    logits[:, shortest:].masked_fill_(columns[shortest:] >= lengths.unsqueeze(1), -torch.inf)
    keys = _sortable(logits).bitwise_left_shift_(32).bitwise_or_(columns)
    if keys.device.type == "cpu":
        keys.numpy().partition(width - k, axis=1)
        best = keys[:, width - k :]
    else:
        best = torch.topk(keys, k, dim=1, sorted=False).values
    chosen = best.bitwise_and(0xFFFFFFFF)
    return chosen if shortest >= k else torch.where(chosen < lengths.unsqueeze(1), chosen, -1)


def everything(lengths: torch.Tensor, k: int) -> torch.Tensor:
    """The selection where no query sees more than K tokens: all of them, without any logits. [T] → [T, K] int64."""
    columns = torch.arange(k, device=lengths.device)
    return torch.where(columns < lengths.unsqueeze(1), columns, -1)


def _sortable(logits: torch.Tensor) -> torch.Tensor:
    """Integers (int64, but 32 bits wide) in the order of the floats: negative ones have their magnitude inverted."""
    bits = (logits + 0.0).view(torch.int32)  # -0.0 becomes 0.0, which it equals
    return (bits >> 31).bitwise_and_(0x7FFFFFFF).bitwise_xor_(bits).long()
