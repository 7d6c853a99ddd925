"""Selection of the K largest logits of each query, and their transform from positions to rows of the pool.

logits [T, L] float32 (columns a query does not see hold NaN), lengths [T] int32, `slots` [B · L] int32 → [T, K] int32:
pool rows in any order, -1 where a query sees fewer than K. Right is what selects exactly as large logits as the
reference does: among equal logits any may be taken, a smaller one in place of a larger is wrong however near it is. Source: sglang's dsa_topk_backend.py (`fast_topk_transform_fused`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.operator import Dtype, MinimumCost, Operator
from dsakernels.operators.indexer import INDEXER_RAGGED
from dsakernels.shape import OperatorShape


@dataclass(frozen=True, slots=True)
class TopkInputs:
    """See the module's docstring. `back` [pool rows] int64: the position in its sequence of the token in a row."""

    shape: OperatorShape
    logits: torch.Tensor
    lengths: torch.Tensor
    slots: torch.Tensor
    back: torch.Tensor
    k: int


def make(shape: OperatorShape, _dtype: Dtype, generator: torch.Generator) -> TopkInputs:
    """Fresh inputs on the generator's device."""
    table = draw.pages(shape, generator)
    slots = draw.slots(table, shape)
    lengths = draw.lengths(shape, slots.device)
    logits = draw.normal((shape.total_q, shape.kv_tokens), generator, torch.float32)
    positions = torch.arange(shape.kv_tokens, device=slots.device)
    logits.masked_fill_(positions >= lengths.unsqueeze(1), torch.nan)
    back = torch.full((table.numel() * draw.PAGE,), -1, device=slots.device)
    back[slots.long()] = torch.arange(shape.total_kv, device=slots.device)
    return TopkInputs(shape, logits, lengths.int(), slots, back, shape.dimensions.index_topk)


def expected(inputs: TopkInputs, rows: torch.Tensor) -> torch.Tensor:
    """The K largest logits of each row in descending order, 0 where there are fewer."""
    positions = torch.arange(inputs.shape.kv_tokens, device=rows.device)
    seen = inputs.logits[rows].double().masked_fill(positions >= inputs.lengths[rows].unsqueeze(1), -torch.inf)
    best = seen.sort(dim=1, descending=True).values[:, : inputs.k]
    return torch.nn.functional.pad(best, (0, inputs.k - best.shape[1]), value=-torch.inf).nan_to_num(neginf=0.0)


def pick(inputs: TopkInputs, output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Logits that were selected, in descending order; NaN where a row of the pool is not the query's or stands twice."""
    chosen = output[rows].long()
    token = inputs.back[chosen.clamp(0, inputs.back.numel() - 1)]
    position = token - (rows // inputs.shape.q_tokens * inputs.shape.kv_tokens).unsqueeze(1)
    empty = chosen == -1
    foreign = (position < 0) | (position >= inputs.lengths[rows].unsqueeze(1)) | (chosen < -1)
    foreign |= chosen >= inputs.back.numel()
    logits = inputs.logits[rows].double().gather(1, position.clamp(0, inputs.shape.kv_tokens - 1))
    ordered = chosen.sort(dim=1).values
    twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(1, keepdim=True)
    bad = (foreign & ~empty) | twice
    found = logits.masked_fill(empty, -torch.inf).sort(dim=1, descending=True).values.nan_to_num(neginf=0.0)
    return found.masked_fill(bad.any(1, keepdim=True), torch.nan)


def cost(shape: OperatorShape, _dtype: Dtype) -> MinimumCost:
    """The logits seen are read once, K rows written and K of the table read; one comparison a logit."""
    return MinimumCost(4 * shape.visible + 8 * shape.total_q * shape.dimensions.index_topk, shape.visible)


def _grid() -> tuple[OperatorShape, ...]:
    prefill = INDEXER_RAGGED.grid()
    return (*prefill, *(s for s in (*shapes.decode(), *shapes.verify()) if s.heads == s.dimensions.heads))


TOPK_SELECT = Operator(
    name="topk_select",
    does="selection of the K largest logits and transform to rows of the pool",
    dtypes=("bf16",),
    tolerance={"bf16": 0.0},
    small=(*shapes.SMALL_PREFILL, *shapes.SMALL_DECODE),
    grid=_grid,
    make=make,
    rows=lambda shape: shape.total_q,
    expected=expected,
    pick=pick,
    cost=cost,
    study=INDEXER_RAGGED.study,
)
