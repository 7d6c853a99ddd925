"""Rows of the cache to packed fp8 and back (`kv_layout`: e4m3 latent, a float32 scale for each of 4 groups, rope as it is).

Quantise: rows [T, D] bfloat16 → packed [T, row_bytes] uint8 in the order of `rows`, 656 bytes at C = 512. Scattering them into
the pool's rows is not part of it. Right is what dequantises to within e4m3's rounding (2^-4 of a value, so about 2.5 % of a row).
Scales are kept by some kernels in float32 and by ours on bfloat16's grid; both pass. Source: sglang's `quantize_k_cache`.

Dequantise the whole prefix: cache [N, row_bytes] uint8, slots [B · L] int32 → [B · L, D] bfloat16, sequence after sequence. What
flashmla_sparse pays before it can run on an fp8 cache. Source: sglang's `dequantize_k_cache_paged`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.kv_layout import GROUPS, PackedLayout
from dsakernels.operator import Dtype, MinimumCost, Operator, rows_of
from dsakernels.shape import OperatorShape


@dataclass(frozen=True, slots=True)
class QuantiseInputs:
    """See the module's docstring."""

    shape: OperatorShape
    rows: torch.Tensor
    layout: PackedLayout


def make_rows(shape: OperatorShape, _dtype: Dtype, generator: torch.Generator) -> QuantiseInputs:
    """Fresh inputs on the generator's device."""
    model = shape.dimensions
    rows = draw.normal((shape.total_q, model.width), generator)
    return QuantiseInputs(shape, rows, PackedLayout(model.latent, model.rope))


def expected_rows(inputs: QuantiseInputs, rows: torch.Tensor) -> torch.Tensor:
    """The values before they were quantised."""
    return inputs.rows[rows].double()


def pick_values(inputs: QuantiseInputs, output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """What the packed bytes say."""
    return dequantised(output[rows], inputs.layout)


def quantise_cost(shape: OperatorShape, _dtype: Dtype) -> MinimumCost:
    """bfloat16 rows read, packed rows written; a comparison and a product a latent value."""
    model = shape.dimensions
    return MinimumCost(shape.total_q * (model.packed_bytes + 2 * model.width), 2 * shape.total_q * model.latent)


def _quantise_grid() -> tuple[OperatorShape, ...]:
    return tuple(OperatorShape("v3.2", 128, 1, new, new) for new in (1, 8, 64, 512, 1024, 2048, 4096, 8192, 16384))


KV_QUANTISE = Operator(
    name="kv_quantise",
    does="new bfloat16 rows to packed fp8 rows",
    dtypes=("fp8",),
    tolerance={"fp8": 4e-2},
    small=shapes.SMALL_PREFILL,
    grid=_quantise_grid,
    make=make_rows,
    rows=lambda shape: shape.total_q,
    expected=expected_rows,
    pick=pick_values,
    cost=quantise_cost,
)


@dataclass(frozen=True, slots=True)
class DequantiseInputs:
    """See the module's docstring."""

    shape: OperatorShape
    cache: torch.Tensor
    slots: torch.Tensor
    layout: PackedLayout


def make_cache(shape: OperatorShape, _dtype: Dtype, generator: torch.Generator) -> DequantiseInputs:
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


def expected_values(inputs: DequantiseInputs, rows: torch.Tensor) -> torch.Tensor:
    """What the bytes say, in float64."""
    return dequantised(inputs.cache[inputs.slots[rows].long()], inputs.layout)


def dequantise_cost(shape: OperatorShape, _dtype: Dtype) -> MinimumCost:
    """Packed rows and their numbers read, bfloat16 rows written; one product a latent value."""
    model = shape.dimensions
    return MinimumCost(shape.total_kv * (model.packed_bytes + 4 + 2 * model.width), shape.total_kv * model.latent)


def _dequantise_grid() -> tuple[OperatorShape, ...]:
    """Prefixes of 1,024 to 128k tokens and batches of them; heads do not matter, so V3.2 stands for all."""
    single = [OperatorShape("v3.2", 128, 1, 1, kv) for kv in (1024, 4096, 16384, 65536, 131072)]
    return (*single, *(OperatorShape("v3.2", 128, batch, 1, 8192) for batch in (8, 32)))


KV_DEQUANTISE = Operator(
    name="kv_dequantise",
    does="packed fp8 rows of the whole prefix to bfloat16",
    dtypes=("fp8",),
    tolerance={"fp8": 5e-3},
    small=shapes.SMALL_PREFILL,
    grid=_dequantise_grid,
    make=make_cache,
    rows=lambda shape: shape.total_kv,
    expected=expected_values,
    pick=rows_of,
    cost=dequantise_cost,
)
