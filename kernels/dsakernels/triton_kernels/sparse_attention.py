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

from dsakernels.triton_kernels.blocking import Blocking, blocking_for

_LOG2E = 1.4426950408889634


@triton.jit
def _latent(
    q, rows, scales, row, present,
    GROUP: tl.constexpr, W: tl.constexpr, ROW: tl.constexpr, SCALES: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Columns of one group of the selected rows, in q's type: a packed row has a scale for each of 4 groups."""
    c = GROUP * W + tl.arange(0, W)
    part = tl.load(rows + row[:, None] * ROW + c[None, :], mask=present[:, None], other=0.0)
    if PACKED:
        factor = tl.load(scales + row * SCALES + GROUP, mask=present, other=0.0)
        part = (part.to(tl.float32) * factor[:, None]).to(q.dtype.element_ty)
    return part


@triton.jit
def _attend(
    q, rows, scales, rope, indices, out, stats, k, scale,
    H: tl.constexpr, C: tl.constexpr, R: tl.constexpr, ROW: tl.constexpr, SCALES: tl.constexpr, ROPE: tl.constexpr,
    PARTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """`rows`, `scales`, `rope` are three views of the cache; ROW, SCALES, ROPE their strides in elements.

    The latent is kept in four groups of columns with an accumulator each, so that a packed row's four scales are one
    number a row each and not one a value.
    """
    token, block, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    head = block * HEADS + tl.arange(0, HEADS)
    real = head < H
    W: tl.constexpr = C // 4
    c, r = tl.arange(0, W), tl.arange(0, R)
    base = (token * H + head)[:, None] * (C + R)
    q0 = tl.load(q + base + c[None, :], mask=real[:, None], other=0.0)
    q1 = tl.load(q + base + W + c[None, :], mask=real[:, None], other=0.0)
    q2 = tl.load(q + base + 2 * W + c[None, :], mask=real[:, None], other=0.0)
    q3 = tl.load(q + base + 3 * W + c[None, :], mask=real[:, None], other=0.0)
    q_rope = tl.load(q + base + C + r[None, :], mask=real[:, None], other=0.0)
    top = tl.full([HEADS], -1.0e30, tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    v0 = tl.zeros([HEADS, W], tl.float32)
    v1 = tl.zeros([HEADS, W], tl.float32)
    v2 = tl.zeros([HEADS, W], tl.float32)
    v3 = tl.zeros([HEADS, W], tl.float32)
    each = tl.cdiv(tl.cdiv(k, PARTS), BLOCK) * BLOCK
    first = part * each
    for start in range(first, tl.minimum(first + each, k), BLOCK):
        place = start + tl.arange(0, BLOCK)
        row = tl.load(indices + token * k + place, mask=place < k, other=-1).to(tl.int64)
        present = row >= 0
        l0 = _latent(q, rows, scales, row, present, 0, W, ROW, SCALES, PACKED)
        l1 = _latent(q, rows, scales, row, present, 1, W, ROW, SCALES, PACKED)
        l2 = _latent(q, rows, scales, row, present, 2, W, ROW, SCALES, PACKED)
        l3 = _latent(q, rows, scales, row, present, 3, W, ROW, SCALES, PACKED)
        turned = tl.load(rope + row[:, None] * ROPE + r[None, :], mask=present[:, None], other=0.0)
        scores = tl.dot(q0, tl.trans(l0))
        scores = tl.dot(q1, tl.trans(l1), scores)
        scores = tl.dot(q2, tl.trans(l2), scores)
        scores = tl.dot(q3, tl.trans(l3), scores)
        scores = tl.dot(q_rope, tl.trans(turned.to(q_rope.dtype)), scores)
        scores = tl.where(present[None, :], scores * scale, -1.0e30)
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.where(present[None, :], tl.exp2(scores - higher[:, None]), 0.0)
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(weights, 1)
        p = weights.to(q0.dtype)
        v0 = tl.dot(p, l0, v0 * shrink[:, None])
        v1 = tl.dot(p, l1, v1 * shrink[:, None])
        v2 = tl.dot(p, l2, v2 * shrink[:, None])
        v3 = tl.dot(p, l3, v3 * shrink[:, None])
        top = higher
    spot = (token * PARTS + part) * H + head
    share = 1.0 / tl.maximum(total, 1.0e-30)[:, None]
    place_out = out + spot[:, None] * C + c[None, :]
    tl.store(place_out, (v0 * share).to(out.dtype.element_ty), mask=real[:, None])
    tl.store(place_out + W, (v1 * share).to(out.dtype.element_ty), mask=real[:, None])
    tl.store(place_out + 2 * W, (v2 * share).to(out.dtype.element_ty), mask=real[:, None])
    tl.store(place_out + 3 * W, (v3 * share).to(out.dtype.element_ty), mask=real[:, None])
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
    q: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    *,
    latent: int,
    scale: float,
    parts: int,
    blocking: Blocking | None = None,
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
    cut = blocking or blocking_for(heads)
    out = torch.empty(tokens, heads, latent, dtype=q.dtype, device=q.device)
    stats = torch.empty(tokens, parts, heads, dtype=torch.float32, device=q.device)
    partial = out if parts == 1 else torch.empty(tokens, parts, heads, latent, dtype=torch.float32, device=q.device)
    _attend[tokens, triton.cdiv(heads, cut.heads), parts](
        *(q, rows, scales, turned, indices, partial, stats, indices.shape[1], scale * _LOG2E),
        H=heads, C=latent, R=rope, ROW=rows.stride(0), SCALES=scales.stride(0), ROPE=turned.stride(0),
        PARTS=parts, HEADS=cut.heads, BLOCK=cut.rows, PACKED=is_packed, num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    if parts > 1:
        _join[tokens, heads](partial, stats, out, H=heads, C=latent, PARTS=parts)
    return out
