"""Lightning-indexer logits: new tokens against all tokens that they see, of a prefill chunk (ragged) or a decode step (paged).

    logit[t, s] = Σ_i weight[t, i] · relu(q[t, i] · k[s]) · scale[s]

q [T, I, E], k [B · L, E] (one key a token, for all I heads) in bfloat16 or fp8 e4m3, scale [B · L] float32 (1 in
bfloat16), weight [T, I] float32 > 0 and < 0. out [T, L] float32: column s is token s of the query's own sequence;
columns that the query does not see hold anything. Source: DeepSeek-V3.2-Exp report, equation 1; DeepGEMM's
fp8_mqa_logits, of which `starts` and `ends` [T] int32 are the arguments, and fp8_paged_mqa_logits.

A decode or verify step has few queries for each of many sequences, and keys in pages. The candidate that reads pages builds
them from `k` and `scale` with `table`: 64 tokens a page, first all keys, then all scales (sglang's index_buf_accessor), 132
bytes a token at E = 128.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.kv_layout import E4M3_MAX
from dsakernels.operator import Dtype, MinimumCost, Operator
from dsakernels.shape import OperatorShape


@dataclass(frozen=True, slots=True)
class IndexerInputs:
    """See the module's docstring. `lengths` [T] int64: tokens that each query sees."""

    shape: OperatorShape
    dtype: Dtype
    q: torch.Tensor
    k: torch.Tensor
    scale: torch.Tensor
    weights: torch.Tensor
    lengths: torch.Tensor
    table: torch.Tensor
    slots: torch.Tensor

    @property
    def starts(self) -> torch.Tensor:
        """First key of each query's sequence, [T] int32."""
        sequences = torch.arange(self.shape.batch, device=self.q.device, dtype=torch.int32)
        return (sequences * self.shape.kv_tokens).repeat_interleave(self.shape.q_tokens)

    @property
    def ends(self) -> torch.Tensor:
        """Behind the last key that each query sees, [T] int32."""
        return self.starts + self.lengths.int()


def make(shape: OperatorShape, dtype: Dtype, generator: torch.Generator) -> IndexerInputs:
    """Fresh inputs on the generator's device."""
    model = shape.dimensions
    table = draw.pages(shape, generator)
    q, weights = _queries(shape, dtype, generator)
    k = draw.normal((shape.total_kv, model.index_dim), generator)
    scale = torch.ones(shape.total_kv, device=k.device)
    if dtype == "fp8":
        scale = k.float().abs().amax(1) / E4M3_MAX
        k = (k.float() / scale.unsqueeze(1)).to(torch.float8_e4m3fn)
    return IndexerInputs(
        shape=shape,
        dtype=dtype,
        q=q,
        k=k,
        scale=scale,
        weights=weights,
        lengths=draw.lengths(shape, k.device),
        table=table,
        slots=draw.slots(table, shape),
    )


def redraw(inputs: IndexerInputs, generator: torch.Generator) -> IndexerInputs:
    """Fresh queries and weights over the same keys."""
    q, weights = _queries(inputs.shape, inputs.dtype, generator)
    return replace(inputs, q=q, weights=weights)


def _queries(shape: OperatorShape, dtype: Dtype, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    model = shape.dimensions
    q = draw.normal((shape.total_q, model.index_heads, model.index_dim), generator)
    weights = draw.normal((shape.total_q, model.index_heads), generator, torch.float32)
    scaled = weights * (model.index_heads * model.index_dim) ** -0.5
    return q if dtype == "bf16" else q.to(torch.float8_e4m3fn), scaled


def expected(inputs: IndexerInputs, rows: torch.Tensor) -> torch.Tensor:
    """The formula in float64 over the values that q and k hold."""
    return torch.stack([_logits(inputs, int(row)) for row in rows])


def norms(inputs: IndexerInputs, rows: torch.Tensor) -> torch.Tensor:
    """[rows], the norm of the terms of a row's logits: that of the logits, where the weights' signs do not cancel."""
    return torch.stack(
        [(inputs.weights[row].double() ** 2 @ _products(inputs, row) ** 2).sum().sqrt() for row in rows.tolist()]
    )


def _logits(inputs: IndexerInputs, row: int) -> torch.Tensor:
    products = _products(inputs, row)
    logits = torch.zeros(inputs.shape.kv_tokens, dtype=torch.float64, device=inputs.q.device)
    logits[: products.shape[1]] = inputs.weights[row].double() @ products
    return logits


def _products(inputs: IndexerInputs, row: int) -> torch.Tensor:
    """[I, tokens that the query sees]: relu(q · k) · scale."""
    first = row // inputs.shape.q_tokens * inputs.shape.kv_tokens
    seen = slice(first, first + int(inputs.lengths[row]))
    return (inputs.q[row].double() @ inputs.k[seen].double().t()).relu_() * inputs.scale[seen].double()


def pick(inputs: IndexerInputs, output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Logits of the tokens that a query sees, 0 for the others."""
    columns = torch.arange(inputs.shape.kv_tokens, device=output.device)
    unseen = columns >= inputs.lengths[rows].unsqueeze(1)
    return output[rows, : inputs.shape.kv_tokens].double().masked_fill(unseen, 0.0)


def cost(shape: OperatorShape, dtype: Dtype) -> MinimumCost:
    """q, keys and weights once, the logits of the tokens seen written once (4 bytes)."""
    model = shape.dimensions
    value = 2 if dtype == "bf16" else 1
    keys = shape.total_kv * (model.index_dim * value + (0 if dtype == "bf16" else 4))
    queries = shape.total_q * model.index_heads * (model.index_dim * value + 4)
    flops = 2 * shape.visible * model.index_heads * (model.index_dim + 1)
    return MinimumCost(keys + queries + 4 * shape.visible, flops)


def paged_keys(inputs: IndexerInputs) -> torch.Tensor:
    """The fp8 keys and their scales as the pool keeps them: [pages, 64 · (E + 4)] uint8."""
    width = inputs.k.shape[1]
    pages = inputs.table.numel()
    keys = torch.zeros(pages * draw.PAGE, width, dtype=torch.uint8, device=inputs.k.device)
    scales = torch.zeros(pages * draw.PAGE, dtype=torch.float32, device=inputs.k.device)
    keys[inputs.slots.long()] = inputs.k.view(torch.uint8)
    scales[inputs.slots.long()] = inputs.scale
    return torch.cat((keys.view(pages, -1), scales.view(pages, -1).view(torch.uint8)), dim=1)


def _ragged_grid() -> tuple[OperatorShape, ...]:
    """The indexer is not split over ranks, so heads do not matter; logits stay below 8 GiB."""
    whole = [shape for shape in shapes.prefill() if shape.heads == shape.dimensions.heads]
    return tuple(shape for shape in whole if shape.total_q * shape.kv_tokens <= 1 << 31)


def _ragged_study() -> tuple[OperatorShape, ...]:
    """One sequence of up to 32k tokens, where dense attention is a choice and the indexer a part of what it saves."""
    whole = [s for s in shapes.study() if s.heads == s.dimensions.heads and s.batch == 1]
    return tuple(shape for shape in whole if shape.kv_tokens <= 32768)


def _paged_grid() -> tuple[OperatorShape, ...]:
    return tuple(s for s in (*shapes.decode(), *shapes.verify()) if s.heads == s.dimensions.heads)


INDEXER_RAGGED = Operator(
    name="indexer_ragged",
    does="lightning-indexer logits of a prefill chunk",
    dtypes=("bf16", "fp8"),
    tolerance={"bf16": 1e-2, "fp8": 1e-2},
    small=shapes.SMALL_PREFILL,
    grid=_ragged_grid,
    make=make,
    rows=lambda shape: shape.total_q,
    expected=expected,
    pick=pick,
    cost=cost,
    redraw=redraw,
    norms=norms,
    study=_ragged_study,
)
INDEXER_PAGED = replace(
    INDEXER_RAGGED,
    name="indexer_paged",
    does="lightning-indexer logits of a decode or verify step",
    small=(*shapes.SMALL_DECODE, *shapes.SMALL_VERIFY),
    grid=_paged_grid,
    study=None,
)
