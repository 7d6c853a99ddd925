"""The two products around sparse attention in MLA's absorbed form: queries into latent space, outputs out of it.

q [T, H, nope] · w_key [H, nope, C] and out [T, H, C] · w_value [H, C, F], all bfloat16 → one tensor [T, H, C + F]. In a
layer the first runs before attention and the second after it; dense attention needs neither. Source: sglang's
forward_mla.py (`w_kc`, `w_vc`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.operator import Dtype, MinimumCost, Operator, rows_of
from dsakernels.shape import OperatorShape


@dataclass(frozen=True, slots=True)
class AbsorbInputs:
    """See the module's docstring."""

    shape: OperatorShape
    q: torch.Tensor
    out: torch.Tensor
    w_key: torch.Tensor
    w_value: torch.Tensor


def make(shape: OperatorShape, _dtype: Dtype, generator: torch.Generator) -> AbsorbInputs:
    """Fresh inputs on the generator's device."""
    model = shape.dimensions
    return AbsorbInputs(
        shape=shape,
        q=draw.normal((shape.total_q, shape.heads, model.nope), generator),
        out=draw.normal((shape.total_q, shape.heads, model.latent), generator),
        w_key=draw.normal((shape.heads, model.nope, model.latent), generator),
        w_value=draw.normal((shape.heads, model.latent, model.value), generator),
    )


def expected(inputs: AbsorbInputs, rows: torch.Tensor) -> torch.Tensor:
    """Both products in float64."""
    latent = torch.einsum("thn,hnc->thc", inputs.q[rows].double(), inputs.w_key.double())
    values = torch.einsum("thc,hcf->thf", inputs.out[rows].double(), inputs.w_value.double())
    return torch.cat((latent, values), dim=-1)


def cost(shape: OperatorShape, _dtype: Dtype) -> MinimumCost:
    """Everything once."""
    model = shape.dimensions
    columns = model.nope + 2 * model.latent + model.value
    weights = shape.heads * model.latent * (model.nope + model.value)
    moved = 2 * (shape.total_q * shape.heads * columns + weights)
    return MinimumCost(moved, 2 * shape.total_q * weights)


def grid() -> tuple[OperatorShape, ...]:
    """New tokens of a step."""
    ranks = (("v3.2", 128), ("v3.2", 16), ("glm5", 64))
    return tuple(
        OperatorShape(m, h, 1, q, q)
        for m, h in ranks
        for q in (1, 16, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 8192, 16384)
    )


ABSORB = Operator(
    name="absorb",
    does="queries into latent space and outputs out of it, around sparse attention",
    dtypes=("bf16",),
    tolerance={"bf16": 1e-2},
    small=(*shapes.SMALL_PREFILL, *shapes.SMALL_DECODE),
    grid=grid,
    make=make,
    rows=lambda shape: shape.total_q,
    expected=expected,
    pick=rows_of,
    cost=cost,
    parts=lambda shape: shape.heads,
)
