"""Expand latent rows to keys and values of every head, for dense attention: what MHA pays before it can start.

latent [N, C], rope [N, R], weight [C, H · (nope + F)] bfloat16, N = B · L tokens → one buffer that holds first the
product [N, H, nope + F], whose last F columns are the values, and then the keys [N, H, nope + R]: the product's first
columns and, for every head again, the rotary part. Attention reads values and keys from there without another copy.
Weights are bfloat16 here; with fp8 weights the product takes less. Source: sglang's forward_mha.py (`kv_b_proj`,
`_concat_and_cast_mha_k`) under MHA_ONE_SHOT, over prefix and new tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.operator import Dtype, MinimumCost, Operator
from dsakernels.shape import OperatorShape


@dataclass(frozen=True, slots=True)
class ExpandInputs:
    """See the module's docstring."""

    shape: OperatorShape
    latent: torch.Tensor
    rope: torch.Tensor
    weight: torch.Tensor

    @property
    def parts(self) -> tuple[int, int]:
        """Columns per token of the product and of the keys."""
        model = self.shape.dimensions
        return self.shape.heads * (model.nope + model.value), self.shape.heads * (model.nope + model.rope)


def make(shape: OperatorShape, _dtype: Dtype, generator: torch.Generator) -> ExpandInputs:
    """Fresh inputs on the generator's device."""
    model = shape.dimensions
    columns = shape.heads * (model.nope + model.value)
    return ExpandInputs(
        shape=shape,
        latent=draw.normal((shape.total_kv, model.latent), generator),
        rope=draw.normal((shape.total_kv, model.rope), generator),
        weight=draw.normal((model.latent, columns), generator),
    )


def expected(inputs: ExpandInputs, rows: torch.Tensor) -> torch.Tensor:
    """Values and keys of these tokens in float64, [rows, H, F + nope + R]."""
    model = inputs.shape.dimensions
    product = (inputs.latent[rows].double() @ inputs.weight.double()).view(len(rows), inputs.shape.heads, -1)
    rope = inputs.rope[rows].double().unsqueeze(1).expand(-1, inputs.shape.heads, -1)
    return torch.cat((product[..., model.nope :], product[..., : model.nope], rope), dim=-1)


def pick(inputs: ExpandInputs, output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Values and keys of these tokens."""
    product, keys = split(inputs, output)
    return torch.cat((product[rows][..., inputs.shape.dimensions.nope :], keys[rows]), dim=-1).double()


def split(inputs: ExpandInputs, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of the buffer: product [N, H, nope + F], keys [N, H, nope + R]."""
    tokens, heads, first = inputs.shape.total_kv, inputs.shape.heads, inputs.shape.total_kv * inputs.parts[0]
    return output[:first].view(tokens, heads, -1), output[first:].view(tokens, heads, -1)


def cost(shape: OperatorShape, _dtype: Dtype) -> MinimumCost:
    """Rows and weights once, product and keys written."""
    model = shape.dimensions
    columns = shape.heads * (model.nope + model.value)
    keys = shape.heads * (model.nope + model.rope)
    moved = 2 * (shape.total_kv * (model.width + columns + keys) + model.latent * columns)
    return MinimumCost(moved, 2 * shape.total_kv * model.latent * columns)


def grid() -> tuple[OperatorShape, ...]:
    """Tokens to expand: one number for prefix and new ones together."""
    ranks = (("v3.2", 128), ("v3.2", 16), ("glm5", 64))
    return tuple(
        OperatorShape(m, h, 1, 1, kv) for m, h in ranks for kv in (1024, 2048, 3072, 4096, 8192, 12288, 16384, 32768)
    )


KV_EXPAND = Operator(
    name="kv_expand",
    does="latent rows to keys and values of every head, before dense attention",
    dtypes=("bf16",),
    tolerance={"bf16": 1e-2},
    small=shapes.SMALL_PREFILL,
    grid=grid,
    make=make,
    rows=lambda shape: shape.total_kv,
    expected=expected,
    pick=pick,
    cost=cost,
    parts=lambda shape: shape.heads,
)
