"""Attention in plain PyTorch: sparse, to the tokens that the indexer selected (MLA's absorbed form), and dense for short prompts.

In the sparse form queries hold, per head, the latent part (q_nope · W_uk, width C) and the rotary part (width R), so that
a cached row serves as key with all of its D = C + R values and as value with its first C. The output stays in latent space.

    out[t, h] = Σ_s softmax_s(scale · q[t, h] · row[s]) · row[s, :C],    s over indices[t], -1 left out

Its two functions differ in where an fp8 cache is dequantised. `flashmla_sparse` reads rows that are plain already
(the caller dequantises the whole prefix once, `kv_layout.unpack`); `flashmla_kv` gathers packed rows and dequantises
only those, once for each query that selects them. The first wins where many queries share one prefix, the second
where the prefix is long against the queries. A -1 reads row 0 with weight 0, so row 0 must be finite.

Queries are processed in blocks. Products leave the matrix units in q's dtype, softmax sums in float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsakernels.kv_layout import PackedLayout, unpack

_SCORES = 1 << 20
"""Scores per block of queries of dense attention: 2 MiB in bfloat16."""
_GATHERED_VALUES = 1 << 20
"""Values gathered per block of queries: 2 MiB in bfloat16, about a core's L2 cache."""


def flashmla_sparse(
    q: torch.Tensor, rows: torch.Tensor, indices: torch.Tensor, *, latent: int, scale: float
) -> torch.Tensor:
    """Take q [T, H, D], rows [N, D] bfloat16 or float32, indices [T, K] into rows → [T, H, C] in q's dtype."""

    def gather(flat: torch.Tensor) -> torch.Tensor:
        return rows.index_select(0, flat).to(q.dtype)

    return _attend_in_blocks(q, indices, gather, latent, scale)


def flashmla_kv(
    q: torch.Tensor, packed: torch.Tensor, indices: torch.Tensor, *, layout: PackedLayout, scale: float
) -> torch.Tensor:
    """Take q [T, H, D], packed [N, row_bytes] uint8, indices [T, K] into packed → [T, H, C] in q's dtype."""

    def gather(flat: torch.Tensor) -> torch.Tensor:
        return unpack(packed.index_select(0, flat), layout, q.dtype)

    return _attend_in_blocks(q, indices, gather, layout.latent, scale)


def _attend_in_blocks(
    q: torch.Tensor, indices: torch.Tensor, gather: Callable[[torch.Tensor], torch.Tensor], latent: int, scale: float
) -> torch.Tensor:
    tokens, heads, width = q.shape
    k = indices.shape[1]
    block = max(1, _GATHERED_VALUES // (k * width))
    out = torch.empty(tokens, heads, latent, dtype=q.dtype, device=q.device)
    for start in range(0, tokens, block):
        part = slice(start, min(start + block, tokens))
        chosen = indices[part]
        rows = gather(chosen.clamp(min=0).view(-1)).view(-1, k, width)
        scores = torch.bmm(q[part] * scale, rows.transpose(1, 2))
        absent = chosen < 0
        if bool(absent.any()):
            scores.masked_fill_(absent.unsqueeze(1), -torch.inf)
        # softmax of a bfloat16 tensor computes and sums in float32 inside and rounds once
        torch.bmm(scores.softmax(-1), rows[:, :, :latent], out=out[part])
    return out


def mha(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float) -> torch.Tensor:
    """Take q [H, T, E], k [H, L, E], v [H, L, F], all of one dtype → [H, T, F].

    Dense causal attention with keys and values per head. Query t sits at position L - T + t and sees every token up to
    itself.
    """
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
