"""Dequantise the whole prefix: packed fp8 rows of a pool to bfloat16 rows, sequence after sequence.

cache [N, row_bytes] uint8 (`kv_layout`; 656 bytes at C = 512), slots [B · L] int32 → [B · L, D] bfloat16. What
flashmla_sparse pays before it can run on an fp8 cache. Source: sglang's `dequantize_k_cache_paged`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.kv_layout import GROUPS, PackedLayout
from dsakernels.operator import Cost, Dtype, Operator, rows_of
from dsakernels.shape import Shape


@dataclass(frozen=True, slots=True)
class DequantiseInputs:
    """See the module's docstring."""

    shape: Shape
    cache: torch.Tensor
    slots: torch.Tensor
    layout: PackedLayout


def make(shape: Shape, _dtype: Dtype, generator: torch.Generator) -> DequantiseInputs:
    """Fresh inputs on the generator's device."""
    model = shape.dimensions
    layout = PackedLayout(model.latent, model.rope)
    table = draw.pages(shape, generator)
    cache = draw.packed(table.numel() * draw.PAGE, layout, generator)
    return DequantiseInputs(shape, cache, draw.slots(table, shape), layout)


def dequantised(packed: torch.Tensor, layout: PackedLayout) -> torch.Tensor:
    """Packed rows [N, row_bytes] to float64 [N, D], by torch's own conversion of every byte."""
    tail = layout.latent + 4 * GROUPS
    latent = packed[:, : layout.latent].contiguous().view(torch.float8_e4m3fn).double()
    scales = packed[:, layout.latent : tail].contiguous().view(torch.float32).double()
    rope = packed[:, tail:].contiguous().view(torch.bfloat16).double()
    return torch.cat(((latent.view(-1, GROUPS, layout.group) * scales.unsqueeze(-1)).flatten(1), rope), dim=1)


def expected(inputs: DequantiseInputs, rows: torch.Tensor) -> torch.Tensor:
    """What the bytes say, in float64."""
    return dequantised(inputs.cache[inputs.slots[rows].long()], inputs.layout)


def cost(shape: Shape, _dtype: Dtype) -> Cost:
    """Packed rows and their numbers read, bfloat16 rows written; one product a latent value."""
    model = shape.dimensions
    return Cost(shape.total_kv * (model.packed_bytes + 4 + 2 * model.width), shape.total_kv * model.latent)


def grid() -> tuple[Shape, ...]:
    """Prefixes of 1,024 to 128k tokens and batches of them; heads do not matter, so V3.2 stands for all."""
    single = [Shape("v3.2", 128, 1, 1, kv) for kv in (1024, 4096, 16384, 65536, 131072)]
    return (*single, *(Shape("v3.2", 128, batch, 1, 8192) for batch in (8, 32)))


OPERATOR = Operator(
    name="kv_dequantise",
    does="packed fp8 rows of the whole prefix to bfloat16",
    dtypes=("fp8",),
    tolerance={"fp8": 5e-3},
    small=shapes.SMALL_PREFILL,
    grid=grid,
    make=make,
    rows=lambda shape: shape.total_kv,
    expected=expected,
    pick=rows_of,
    cost=cost,
)
