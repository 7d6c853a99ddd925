"""Dense causal attention of a prefill chunk over prefix and new tokens in one shot (MHA_ONE_SHOT), per-head K and V.

q [T, H, E], k [B · L, H, E], v [B · L, H, F] bfloat16, sequence after sequence, E = nope + rope, F = value; out
[T, H, F] bfloat16. Query t of a sequence sees its first L - T + t + 1 tokens. The projection of the latent rows to keys
and values is not part of it. Source: sglang's dsa_backend.py `_forward_standard_mha`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.operator import Cost, Dtype, Operator, rows_of
from dsakernels.shape import Shape


@dataclass(frozen=True, slots=True)
class DenseInputs:
    """See the module's docstring."""

    shape: Shape
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scale: float


def make(shape: Shape, _dtype: Dtype, generator: torch.Generator) -> DenseInputs:
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


def expected(inputs: DenseInputs, rows: torch.Tensor) -> torch.Tensor:
    """The formula in float64, query by query."""
    return torch.stack([_attend(inputs, int(row)) for row in rows])


def _attend(inputs: DenseInputs, row: int) -> torch.Tensor:
    shape = inputs.shape
    sequence, token = divmod(row, shape.q_tokens)
    first = sequence * shape.kv_tokens
    seen = slice(first, first + shape.kv_tokens - shape.q_tokens + token + 1)
    scores = torch.einsum("hd,lhd->hl", inputs.q[row].double() * inputs.scale, inputs.k[seen].double())
    return torch.einsum("hl,lhf->hf", scores.softmax(-1), inputs.v[seen].double())


def cost(shape: Shape, _dtype: Dtype) -> Cost:
    """q, k, v and out once; scores and values of the tokens seen."""
    model = shape.dimensions
    key, value = model.nope + model.rope, model.value
    moved = 2 * shape.heads * (key + value) * (shape.total_q + shape.total_kv)
    return Cost(moved, 2 * shape.visible * shape.heads * (key + value))


def _grid() -> tuple[Shape, ...]:
    """Up to 32k tokens: beyond, sparse attention has won long before and K and V of all heads fill the memory."""
    return tuple(shape for shape in shapes.prefill() if shape.kv_tokens <= 32768)


OPERATOR = Operator(
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
)
