"""Sparse MLA attention for any GPU that Triton compiles for: one kernel for prefill, decode and verify.

A program takes one query, a block of its heads and one part of its selection; it keeps the running maximum, sum and
weighted values of a softmax over blocks of selected rows (online softmax), reads packed fp8 rows as they are, and
writes its part. Parts are joined by `_join`. A decode step has few queries, so the selection is cut into more parts
until the device is full; a prefill chunk takes one part.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_LOG2E = 1.4426950408889634


@triton.jit
def _attend(
    q, rows, scales, rope, indices, out, stats, k, scale,
    H: tl.constexpr, C: tl.constexpr, R: tl.constexpr, ROW: tl.constexpr, SCALES: tl.constexpr, ROPE: tl.constexpr,
    PARTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """`rows`, `scales`, `rope` are three views of the cache; ROW, SCALES, ROPE their strides in elements."""
    token, block, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    head = block * HEADS + tl.arange(0, HEADS)
    real = head < H
    c, r = tl.arange(0, C), tl.arange(0, R)
    base = (token * H + head)[:, None] * (C + R)
    q_latent = tl.load(q + base + c[None, :], mask=real[:, None], other=0.0)
    q_rope = tl.load(q + base + C + r[None, :], mask=real[:, None], other=0.0)
    top = tl.full([HEADS], -1.0e30, tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    values = tl.zeros([HEADS, C], tl.float32)
    each = tl.cdiv(tl.cdiv(k, PARTS), BLOCK) * BLOCK
    first = part * each
    for start in range(first, tl.minimum(first + each, k), BLOCK):
        place = start + tl.arange(0, BLOCK)
        row = tl.load(indices + token * k + place, mask=place < k, other=-1).to(tl.int64)
        present = row >= 0
        latent = tl.load(rows + row[:, None] * ROW + c[None, :], mask=present[:, None], other=0.0)
        if PACKED:
            group = c // (C // 4)
            factor = tl.load(scales + row[:, None] * SCALES + group[None, :], mask=present[:, None], other=0.0)
            latent = (latent.to(tl.float32) * factor).to(q_latent.dtype)
        turned = tl.load(rope + row[:, None] * ROPE + r[None, :], mask=present[:, None], other=0.0)
        scores = tl.dot(q_latent, tl.trans(latent)) + tl.dot(q_rope, tl.trans(turned.to(q_latent.dtype)))
        scores = tl.where(present[None, :], scores * scale, -1.0e30)
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.where(present[None, :], tl.exp2(scores - higher[:, None]), 0.0)
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(weights, 1)
        values = values * shrink[:, None] + tl.dot(weights.to(q_latent.dtype), latent)
        top = higher
    spot = (token * PARTS + part) * H + head
    answer = values / tl.maximum(total, 1.0e-30)[:, None]
    tl.store(out + spot[:, None] * C + c[None, :], answer.to(out.dtype.element_ty), mask=real[:, None])
    tl.store(stats + spot, top + tl.log2(tl.maximum(total, 1.0e-30)), mask=real)


@triton.jit
def _join(partial, stats, out, H: tl.constexpr, C: tl.constexpr, PARTS: tl.constexpr):
    """out[t, h] = Σ_p 2^(stats_p - max) · partial_p / Σ_p 2^(stats_p - max)."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    part, c = tl.arange(0, PARTS), tl.arange(0, C)
    spot = (token * PARTS + part) * H + head
    logs = tl.load(stats + spot)
    weights = tl.exp2(logs - tl.max(logs, 0))
    values = tl.load(partial + spot[:, None] * C + c[None, :])
    joined = tl.sum(values * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(out + (token * H + head) * C + c, joined.to(out.dtype.element_ty))


def attend(
    q: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, *, latent: int, scale: float, parts: int
) -> torch.Tensor:
    """Take q [T, H, D] and cache [N, D] of one float type, or cache [N, row_bytes] uint8, indices [T, K] int32 → [T, H, C].

    `parts` must be a power of two.
    """
    tokens, heads, width = q.shape
    rope = width - latent
    is_packed = cache.dtype == torch.uint8
    if is_packed:
        rows, scales = cache.view(torch.float8_e4m3fn), cache.view(torch.float32)[:, latent // 4 :]
        turned = cache.view(torch.bfloat16)[:, latent // 2 + 8 :]
    else:
        rows, scales, turned = cache, cache, cache[:, latent:]
    block_heads = 16 if heads <= 16 else 32
    out = torch.empty(tokens, heads, latent, dtype=q.dtype, device=q.device)
    stats = torch.empty(tokens, parts, heads, dtype=torch.float32, device=q.device)
    partial = out if parts == 1 else torch.empty(tokens, parts, heads, latent, dtype=torch.float32, device=q.device)
    _attend[tokens, triton.cdiv(heads, block_heads), parts](
        *(q, rows, scales, turned, indices, partial, stats, indices.shape[1], scale * _LOG2E),
        H=heads, C=latent, R=rope, ROW=rows.stride(0), SCALES=scales.stride(0), ROPE=turned.stride(0),
        PARTS=parts, HEADS=block_heads, BLOCK=32, PACKED=is_packed, num_warps=8, num_stages=2,
    )  # fmt: skip
    if parts > 1:
        _join[tokens, heads](partial, stats, out, H=heads, C=latent, PARTS=parts)
    return out


def parts_for(tokens: int, heads: int, k: int, processors: int) -> int:
    """Parts of a selection, so that there are two programs for each processor; none shorter than 128 rows."""
    programs = tokens * triton.cdiv(heads, 16 if heads <= 16 else 32)
    parts = 1
    while programs * parts < 2 * processors and k // (2 * parts) >= 128:
        parts *= 2
    return parts
