"""Generators of inputs: fresh random values without zeros, and selections as local as an indexer's.

Zeros are kept out because they hide errors (a kernel that skips work is right about them) and cost a GPU less power.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dsakernels.kv_layout import PackedLayout, pack
from dsakernels.shape import OperatorShape

PAGE = 64
"""Tokens of a page: the only size that flash_mla_with_kvcache takes."""
_SMALLEST = 2.0**-6
_SCORES = 1 << 26
_CHUNK = 1 << 26
"""Values drawn at once: a pool of 128 × 128k tokens in float32 would fill a GPU."""
_RUN, _NEIGHBOURS = 16, 64


def normal(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Standard normal values; those nearer to 0 than 2^-6 are moved there."""
    values = torch.empty(shape, dtype=dtype, device=generator.device)
    for part in values.view(-1).split(_CHUNK):  # type: ignore[no-untyped-call]
        drawn = torch.randn(part.shape, generator=generator, device=generator.device)
        part.copy_(drawn.abs().clamp_(min=_SMALLEST).copysign_(drawn))
    return values


def packed(rows: int, layout: PackedLayout, generator: torch.Generator) -> torch.Tensor:
    """A pool of packed rows [rows, row_bytes] uint8 of such values, without ever holding all of them in float."""
    pool = torch.empty(rows, layout.row_bytes, dtype=torch.uint8, device=generator.device)
    width = layout.latent + layout.rope
    for first in range(0, rows, _CHUNK // width):
        part = pool[first : first + _CHUNK // width]
        part.copy_(pack(normal((len(part), width), generator), layout))
    return pool


def pages(shape: OperatorShape, generator: torch.Generator) -> torch.Tensor:
    """Page table [B, pages of a sequence] int32: the pool's pages in random order, as after hours of serving."""
    per_sequence = -(-shape.kv_tokens // PAGE)
    order = torch.randperm(shape.batch * per_sequence, generator=generator, device=generator.device)
    return order.view(shape.batch, per_sequence).int()


def slots(table: torch.Tensor, shape: OperatorShape) -> torch.Tensor:
    """Pool row of every cached token [B · L] int32, sequence after sequence."""
    inside = torch.arange(PAGE, device=table.device, dtype=torch.int32)
    rows = (table.unsqueeze(-1) * PAGE + inside).flatten(1)
    return rows[:, : shape.kv_tokens].reshape(-1).contiguous()  # of one-token sequences, reshape leaves a view


def lengths(shape: OperatorShape, device: torch.device) -> torch.Tensor:
    """Tokens that each query sees, [T] int64."""
    seen = torch.arange(shape.kv_tokens - shape.q_tokens + 1, shape.kv_tokens + 1, device=device)
    return seen.repeat(shape.batch)


def selection(shape: OperatorShape, generator: torch.Generator) -> torch.Tensor:
    """Tokens selected by each query [T, K] int32, numbered through all sequences, -1 where there are fewer than K.

    An assumption, not a measurement, of what an indexer selects: runs of 16 tokens matter together, 64 neighbouring
    queries mostly agree, and recent tokens matter more (half of their weight is gone after L / 8 tokens).
    """
    k, parts = shape.dimensions.index_topk, []
    for sequence in range(shape.batch):
        for first, last in _blocks_of_queries(shape):
            local = _select(shape, first, last, generator)
            parts.append(torch.where(local >= 0, local + sequence * shape.kv_tokens, -1).int())
    chosen = torch.cat(parts)
    return torch.nn.functional.pad(chosen, (0, k - chosen.shape[1]), value=-1)


def _select(shape: OperatorShape, first: int, last: int, generator: torch.Generator) -> torch.Tensor:
    device, length = generator.device, shape.kv_tokens
    runs = -(-length // _RUN)
    shared = torch.randn(1, runs, generator=generator, device=device).repeat_interleave(_RUN, 1)[:, :length]
    own = torch.randn(last - first, length, generator=generator, device=device)
    seen = torch.arange(length - shape.q_tokens + first + 1, length - shape.q_tokens + last + 1, device=device)
    age = seen.unsqueeze(1) - 1 - torch.arange(length, device=device)
    scores = shared + 0.3 * own - age / (length / 8 + 1)
    scores.masked_fill_(age < 0, -torch.inf)
    best = scores.topk(min(length, shape.dimensions.index_topk), dim=1, sorted=False)
    return best.indices.masked_fill(best.values == -torch.inf, -1)


def _blocks_of_queries(shape: OperatorShape) -> Iterator[tuple[int, int]]:
    block = max(1, min(_NEIGHBOURS, _SCORES // shape.kv_tokens))
    for first in range(0, shape.q_tokens, block):
        yield first, min(first + block, shape.q_tokens)
