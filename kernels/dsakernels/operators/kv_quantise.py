"""Quantise the new tokens' rows: bfloat16 to packed fp8.

rows [T, D] bfloat16 → packed [T, row_bytes] uint8 in the order of `rows` (`kv_layout`: e4m3 latent, a float32 scale for
each of 4 groups, rope as it is). Scattering them into the pool's rows is not part of it. Right is what
dequantises to within e4m3's rounding (2^-4 of a value, so about 2.5 % of a row). Scales are kept by some kernels in float32
and by ours on bfloat16's grid; both pass.
Source: sglang's `quantize_k_cache`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.kv_layout import PackedLayout
from dsakernels.operator import Cost, Dtype, Operator
from dsakernels.operators.kv_dequantise import dequantised
from dsakernels.shape import Shape


@dataclass(frozen=True, slots=True)
class QuantiseInputs:
    """See the module's docstring."""

    shape: Shape
    rows: torch.Tensor
    layout: PackedLayout


def make(shape: Shape, _dtype: Dtype, generator: torch.Generator) -> QuantiseInputs:
    """Fresh inputs on the generator's device."""
    model = shape.dimensions
    rows = draw.normal((shape.total_q, model.width), generator)
    return QuantiseInputs(shape, rows, PackedLayout(model.latent, model.rope))


def expected(inputs: QuantiseInputs, rows: torch.Tensor) -> torch.Tensor:
    """The values before they were quantised."""
    return inputs.rows[rows].double()


def pick(inputs: QuantiseInputs, output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """What the packed bytes say."""
    return dequantised(output[rows], inputs.layout)


def cost(shape: Shape, _dtype: Dtype) -> Cost:
    """bfloat16 rows read, packed rows written; a comparison and a product a latent value."""
    model = shape.dimensions
    return Cost(shape.total_q * (model.packed_bytes + 2 * model.width), 2 * shape.total_q * model.latent)


def _grid() -> tuple[Shape, ...]:
    return tuple(Shape("v3.2", 128, 1, new, new) for new in (1, 8, 64, 512, 1024, 2048, 4096, 8192, 16384))


OPERATOR = Operator(
    name="kv_quantise",
    does="new bfloat16 rows to packed fp8 rows",
    dtypes=("fp8",),
    tolerance={"fp8": 4e-2},
    small=shapes.SMALL_PREFILL,
    grid=_grid,
    make=make,
    rows=lambda shape: shape.total_q,
    expected=expected,
    pick=pick,
    cost=cost,
)
