"""Sparse attention over the tokens that the indexer selected, in MLA's absorbed form: prefill, decode and MTP verify.

The three differ in their shapes only, and with them in which kernel is best: in a decode step every row is read for one
query alone; in a verify step the last token of each sequence and its drafts, 2 or 4 queries, each with a selection of its
own, so that a row selected by all four is read four times.

    out[t, h] = Σ_s softmax_s(scale · q[t, h] · row[s]) · row[s, :C],    s over the selection of t

q [T, H, D] bfloat16; the cache is a pool of rows: [N, D] bfloat16, or packed [N, row_bytes] uint8 (`kv_layout`: 656
bytes at C = 512). The selection comes twice, as the runtime has it: `selected` [T, K] int32 numbers the tokens through
all sequences, `indices` [T, K] int32 are pool rows; -1 leaves a place empty. out [T, H, C] bfloat16. `scale` is
(nope + rope)^-½. Source: DeepSeek-V3.2-Exp report, section 2; FlashMLA's flash_mla_sparse_fwd and sglang's
dsa_backend.py `_forward_flashmla_sparse`, `_forward_flashmla_kv`, `_forward_fa3`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.kv_layout import PackedLayout, unpack
from dsakernels.operator import Dtype, MinimumCost, Operator, rows_of
from dsakernels.shape import OperatorShape

_BLOCK = 16


@dataclass(frozen=True, slots=True)
class SparseInputs:
    """See the module's docstring. `table` [B, pages] int32, `slots` [B · L] int32: pool row of every token."""

    shape: OperatorShape
    dtype: Dtype
    q: torch.Tensor
    cache: torch.Tensor
    table: torch.Tensor
    slots: torch.Tensor
    selected: torch.Tensor
    indices: torch.Tensor
    scale: float

    @property
    def layout(self) -> PackedLayout:
        """Of a packed row."""
        return PackedLayout(self.shape.dimensions.latent, self.shape.dimensions.rope)


def make(shape: OperatorShape, dtype: Dtype, generator: torch.Generator) -> SparseInputs:
    """Fresh inputs on the generator's device."""
    model = shape.dimensions
    table = draw.pages(shape, generator)
    slots = draw.slots(table, shape)
    rows, layout = table.numel() * draw.PAGE, PackedLayout(model.latent, model.rope)
    is_packed = dtype == "fp8"
    cache = draw.packed(rows, layout, generator) if is_packed else draw.normal((rows, model.width), generator)
    selected, indices = _selection(shape, slots, generator)
    return SparseInputs(
        shape=shape,
        dtype=dtype,
        q=_queries(shape, generator),
        cache=cache,
        table=table,
        slots=slots,
        selected=selected,
        indices=indices,
        scale=(model.nope + model.rope) ** -0.5,
    )


def redraw(inputs: SparseInputs, generator: torch.Generator) -> SparseInputs:
    """Fresh queries and selections over the same cache."""
    selected, indices = _selection(inputs.shape, inputs.slots, generator)
    return replace(inputs, q=_queries(inputs.shape, generator), selected=selected, indices=indices)


def _queries(shape: OperatorShape, generator: torch.Generator) -> torch.Tensor:
    return draw.normal((shape.total_q, shape.heads, shape.dimensions.width), generator)


def _selection(
    shape: OperatorShape, slots: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    selected = draw.selection(shape, generator)
    return selected, torch.where(selected >= 0, slots[selected.clamp(min=0).long()], -1)


def expected(inputs: SparseInputs, rows: torch.Tensor) -> torch.Tensor:
    """The formula in float64, over the values that the cache holds (a packed row's rounding is no error)."""
    return torch.cat([_attend(inputs, rows[first : first + _BLOCK]) for first in range(0, len(rows), _BLOCK)])


def _attend(inputs: SparseInputs, rows: torch.Tensor) -> torch.Tensor:
    indices = inputs.indices[rows].long()
    gathered = inputs.cache[indices.clamp(min=0).flatten()]
    values = gathered if inputs.dtype == "bf16" else unpack(gathered, inputs.layout, torch.float32)
    keys = values.double().view(*indices.shape, -1)
    scores = torch.einsum("thd,tkd->thk", inputs.q[rows].double() * inputs.scale, keys)
    weights = scores.masked_fill((indices < 0).unsqueeze(1), -torch.inf).softmax(-1)
    return torch.einsum("thk,tkc->thc", weights, keys[:, :, : inputs.layout.latent])


def cost(shape: OperatorShape, dtype: Dtype) -> MinimumCost:
    """Each selected row once (they cannot be more than there are), q, indices and out once."""
    model = shape.dimensions
    row = 2 * model.width if dtype == "bf16" else model.packed_bytes
    rows = min(shape.total_kv, shape.selected) * row
    vectors = 2 * shape.total_q * shape.heads * (model.width + model.latent)
    indices = 4 * shape.total_q * model.index_topk
    return MinimumCost(rows + vectors + indices, 2 * shape.selected * shape.heads * (model.width + model.latent))


TOLERANCE: dict[Dtype, float] = {"bf16": 2e-2, "fp8": 2e-2}
"""Of the worst head. bfloat16 rounds weights and output at 2^-9: 0.2 %; rows that are dequantised to bfloat16 first: 0.7 %
in 2,048 heads. One selected row missed of 2,048 is an error of 2.8 to 30 % in the worst of 128 heads."""

SPARSE_PREFILL = Operator(
    name="sparse_prefill",
    does="sparse attention of a prefill chunk over the selected tokens",
    dtypes=("bf16", "fp8"),
    tolerance=TOLERANCE,
    small=shapes.SMALL_PREFILL,
    grid=shapes.prefill,
    make=make,
    rows=lambda shape: shape.total_q,
    expected=expected,
    pick=rows_of,
    cost=cost,
    parts=lambda shape: shape.heads,
    redraw=redraw,
    study=shapes.study,
    rank=shapes.rank_prefill,
)
SPARSE_DECODE = replace(
    SPARSE_PREFILL,
    name="sparse_decode",
    does="sparse attention of a decode step, one query a sequence",
    small=shapes.SMALL_DECODE,
    grid=shapes.decode,
    study=None,
    rank=shapes.rank_decode,
)
MTP_VERIFY = replace(
    SPARSE_PREFILL,
    name="mtp_verify",
    does="sparse attention of an MTP verify step, 2 or 4 queries a sequence",
    small=shapes.SMALL_VERIFY,
    grid=shapes.verify,
    study=None,
    rank=None,
)
