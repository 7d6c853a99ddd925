"""Dense causal attention of a prefill chunk over prefix and new tokens in one shot (MHA_ONE_SHOT), per-head K and V.

q [T, H, E], k [B · L, H, E], v [B · L, H, F] bfloat16, sequence after sequence, E = nope + rope, F = value; out
[T, H, F] bfloat16. Query t of a sequence sees its first L - T + t + 1 tokens. The projection of the latent rows to keys
and values is not part of it. Source: sglang's dsa_backend.py `_forward_standard_mha`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.operator import Dtype, MinimumCost, Operator, rows_of
from dsakernels.shape import OperatorShape


@dataclass(frozen=True, slots=True)
class DenseInputs:
    """See the module's docstring."""

    shape: OperatorShape
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scale: float


def make(shape: OperatorShape, _dtype: Dtype, generator: torch.Generator) -> DenseInputs:
    """Fresh inputs on the generator's device."""
    model = shape.dimensions
    width = model.nope + model.rope
    return DenseInputs(
        shape=shape,
        q=draw.normal((shape.total_q, shape.heads, width), generator),
        k=draw.normal((shape.total_kv, shape.heads, width), generator),
        v=draw.normal((shape.total_kv, shape.heads, model.value), generator),
        scale=width**-0.5,
    )


def redraw(inputs: DenseInputs, generator: torch.Generator) -> DenseInputs:
    """Fresh queries over the same keys and values."""
    return replace(inputs, q=draw.normal(tuple(inputs.q.shape), generator))


def expected(inputs: DenseInputs, rows: torch.Tensor) -> torch.Tensor:
    """The formula in float64, sequence by sequence and head by head: K and V of all heads would not fit."""
    out = torch.empty(len(rows), *inputs.q.shape[1:2], inputs.v.shape[2], dtype=torch.float64, device=rows.device)
    sequences = rows // inputs.shape.q_tokens
    for sequence in torch.unique(sequences).tolist():
        mine = sequences == sequence
        out[mine] = _attend(inputs, sequence, rows[mine])
    return out


def _attend(inputs: DenseInputs, sequence: int, rows: torch.Tensor) -> torch.Tensor:
    shape = inputs.shape
    kept = slice(sequence * shape.kv_tokens, (sequence + 1) * shape.kv_tokens)
    last = rows % shape.q_tokens + shape.kv_tokens - shape.q_tokens
    future = torch.arange(shape.kv_tokens, device=rows.device) > last.unsqueeze(1)
    heads = []
    for head in range(inputs.q.shape[1]):
        scores = inputs.q[rows, head].double() * inputs.scale @ inputs.k[kept, head].double().t()
        heads.append(scores.masked_fill_(future, -torch.inf).softmax(-1) @ inputs.v[kept, head].double())
    return torch.stack(heads, 1)


def cost(shape: OperatorShape, _dtype: Dtype) -> MinimumCost:
    """q, k, v and out once; scores and values of the tokens seen."""
    model = shape.dimensions
    key, value = model.nope + model.rope, model.value
    moved = 2 * shape.heads * (key + value) * (shape.total_q + shape.total_kv)
    return MinimumCost(moved, 2 * shape.visible * shape.heads * (key + value))


def _grid() -> tuple[OperatorShape, ...]:
    """Up to 32k tokens: beyond, sparse attention has won long before and K and V of all heads fill the memory."""
    return tuple(shape for shape in shapes.prefill() if shape.kv_tokens <= 32768)


def _study() -> tuple[OperatorShape, ...]:
    return tuple(shape for shape in shapes.study() if shape.total_kv <= 32768)


DENSE_PREFILL = Operator(
    name="dense_prefill",
    does="dense MHA of a prefill chunk over prefix and new tokens",
    dtypes=("bf16",),
    tolerance={"bf16": 1e-2},
    small=shapes.SMALL_PREFILL,
    grid=_grid,
    make=make,
    rows=lambda shape: shape.total_q,
    expected=expected,
    pick=rows_of,
    cost=cost,
    parts=lambda shape: shape.heads,
    redraw=redraw,
    study=_study,
)
