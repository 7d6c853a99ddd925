"""Selection of the K most important cached tokens per query, under the causal mask.

Indices come in no particular order, as the attention that follows does not depend on it; -1 marks a place for which
there was no token (rows with fewer than K visible tokens).
"""

from __future__ import annotations

import numpy as np
import torch


def select(logits: torch.Tensor, lengths: torch.Tensor, k: int) -> torch.Tensor:
    """Logits [T, L] float32 and visible lengths [T] int64 (1 … L) → indices [T, K] int64. Overwrites masked logits.

    Query t sees columns 0 … lengths[t] - 1. On a CPU it partitions with numpy, whose AVX selection is 3 to 5 times as
    fast as `torch.topk`.
    """
    width = logits.shape[1]
    if width <= k:
        return everything(lengths, k)
    shortest = int(lengths.min())
    columns = torch.arange(shortest, width, device=logits.device)
    logits[:, shortest:].masked_fill_(columns >= lengths.unsqueeze(1), -torch.inf)
    if logits.device.type == "cpu":
        chosen = torch.from_numpy(np.argpartition(logits.numpy(), width - k, axis=1)[:, width - k :])
    else:
        chosen = torch.topk(logits, k, dim=1, sorted=False).indices
    return chosen if shortest >= k else torch.where(chosen < lengths.unsqueeze(1), chosen, -1)


def everything(lengths: torch.Tensor, k: int) -> torch.Tensor:
    """The selection where no row sees more than K tokens: all of them, without any logits. [T] → [T, K] int64."""
    columns = torch.arange(k, device=lengths.device)
    return torch.where(columns < lengths.unsqueeze(1), columns, -1)
