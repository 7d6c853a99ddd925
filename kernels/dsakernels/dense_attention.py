"""Dense causal attention: per-head keys and values (MHA, for short prefill), and MLA's absorbed form (for checks).

Both take the queries of the last T tokens of a sequence of L: query t sits at position L - T + t and sees every token
up to itself. Queries are processed in blocks so that the scores stay small. Softmax sums in float32.
"""

from __future__ import annotations

import torch

_SCORES = 1 << 20
"""Scores per block of queries: 2 MiB in bfloat16."""


def mha(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float) -> torch.Tensor:
    """Take q [H, T, E], k [H, L, E], v [H, L, F], all of one dtype → [H, T, F]: prefix and new tokens in one shot."""
    heads, tokens, _ = q.shape
    length = k.shape[1]
    first = length - tokens
    out = torch.empty(heads, tokens, v.shape[2], dtype=q.dtype, device=q.device)
    block = max(64, min(256, _SCORES // (heads * length)))
    future = torch.ones(block, block, dtype=torch.bool, device=q.device).triu_(1)
    transposed, q = k.transpose(1, 2), q * scale
    for start in range(0, tokens, block):
        stop = min(start + block, tokens)
        rows, end = stop - start, first + stop
        scores = torch.bmm(q[:, start:stop], transposed[:, :, :end])
        scores[:, :, end - rows :].masked_fill_(future[:rows, :rows], -torch.inf)
        out[:, start:stop] = torch.bmm(scores.softmax(-1), v[:, :end])
    return out
