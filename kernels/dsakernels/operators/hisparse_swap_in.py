"""HiSparse: bring the selected tokens that are not in the device's hot buffer in from host memory.

Per sequence the device keeps S rows of the cache, the host all L. `wanted` [B, K] int32: selected tokens of a decode
step (-1: none). `held` [B, L] int32: the buffer row of a token, -1 where only the host has it. `oldest` [B, S] int32:
buffer rows in the order in which they may be given up; rows of wanted tokens stand last. Each missing token takes the
next of `oldest`, its row [D] bfloat16 is copied from `host` [B · L, D] (pinned where there is a GPU) to `buffer`
[B · S, D], and the answer is the buffer row of every wanted token, [B, K] int32 through all sequences, -1 for none.
The tables are not updated, so that a call can be repeated. Source: sglang's jit_kernel/hisparse.py (top_k 2048,
device_buffer_size 6144), whose LRU bookkeeping is not part of this.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.operator import Cost, Dtype, Operator
from dsakernels.shape import Shape

HELD_PER_TOPK = 3
"""Rows of the hot buffer for each of index_topk: 6144 / 2048."""
_HIT = 0.9


@dataclass(frozen=True, slots=True)
class SwapInputs:
    """See the module's docstring."""

    shape: Shape
    host: torch.Tensor
    buffer: torch.Tensor
    wanted: torch.Tensor
    held: torch.Tensor
    oldest: torch.Tensor


def make(shape: Shape, _dtype: Dtype, generator: torch.Generator) -> SwapInputs:
    """Fresh inputs; 9 of 10 wanted tokens are held (an assumption: real hit rates depend on the text)."""
    host = draw.normal((shape.total_kv, shape.dimensions.width), generator)
    return _swap(shape, host.cpu().pin_memory() if generator.device.type == "cuda" else host, generator)


def redraw(inputs: SwapInputs, generator: torch.Generator) -> SwapInputs:
    """Fresh selections and another buffer over the same host memory: a check of 256 queries draws as often."""
    return _swap(inputs.shape, inputs.host, generator)


def _swap(shape: Shape, host: torch.Tensor, generator: torch.Generator) -> SwapInputs:
    device, size = generator.device, HELD_PER_TOPK * shape.dimensions.index_topk
    first = torch.arange(shape.batch, device=device).unsqueeze(1) * shape.kv_tokens
    selected = draw.selection(shape, generator)
    wanted = torch.where(selected >= 0, selected - first, -1)
    held = torch.full((shape.batch, shape.kv_tokens), -1, dtype=torch.int32, device=device)
    oldest = torch.empty(shape.batch, size, dtype=torch.int32, device=device)
    for sequence in range(shape.batch):
        tokens = wanted[sequence][wanted[sequence] >= 0]
        kept = tokens[torch.rand(len(tokens), generator=generator, device=device) < _HIT]
        rows = torch.randperm(size, generator=generator, device=device).int()
        held[sequence, kept] = rows[: len(kept)]
        oldest[sequence] = torch.cat((rows[len(kept) :], rows[: len(kept)]))
    buffer = draw.normal((shape.batch * size, shape.dimensions.width), generator)
    present = held >= 0
    sequences = torch.arange(shape.batch, device=device).unsqueeze(1) * size
    places = (held + sequences)[present].long()
    buffer[places] = host[present.flatten().nonzero().squeeze(1).to(host.device)].to(device)
    return SwapInputs(shape, host, buffer, wanted.int(), held, oldest)


def spoil(inputs: SwapInputs) -> None:
    """Rows of the buffer that hold no token become NaN: there the missing ones have to arrive, by this call."""
    batch, size = inputs.oldest.shape
    places = inputs.held + torch.arange(batch, device=inputs.held.device).unsqueeze(1) * size
    is_free = torch.ones(batch * size, dtype=torch.bool, device=inputs.held.device)
    is_free[places[inputs.held >= 0].long()] = False
    inputs.buffer[is_free] = torch.nan


def expected(inputs: SwapInputs, rows: torch.Tensor) -> torch.Tensor:
    """The rows of the wanted tokens, 0 for none: [rows, K, D] float64."""
    wanted = inputs.wanted[rows].long()
    tokens = (wanted.clamp(min=0) + rows.unsqueeze(1) * inputs.shape.kv_tokens).cpu()
    values = inputs.host[tokens.to(inputs.host.device)].to(rows.device).double()
    return values.masked_fill((wanted < 0).unsqueeze(2), 0.0)


def pick(inputs: SwapInputs, output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """What lies in the buffer where the answer says that it does."""
    places = output[rows].long()
    values = inputs.buffer[places.clamp(0, len(inputs.buffer) - 1)].double()
    absent = (inputs.wanted[rows] < 0).unsqueeze(2)
    return values.masked_fill((places < 0).unsqueeze(2) & ~absent, torch.nan).masked_fill(absent, 0.0)


def cost(shape: Shape, _dtype: Dtype) -> Cost:
    """A tenth of the selected rows over the host's link and into the buffer, and the look-up of all of them."""
    missing = round(shape.selected * (1 - _HIT))
    return Cost(4 * shape.dimensions.width * missing + 12 * shape.total_q * shape.dimensions.index_topk, 0)


def _grid() -> tuple[Shape, ...]:
    return tuple(Shape("v3.2", 128, b, 1, kv) for b in (1, 8, 32) for kv in (8192, 32768) if b * kv <= 1 << 19)


OPERATOR = Operator(
    name="hisparse_swap_in",
    does="missing selected rows from host memory into the hot buffer",
    dtypes=("bf16",),
    tolerance={"bf16": 0.0},
    small=tuple(shape for shape in shapes.SMALL_DECODE if shape.kv_tokens >= 256),
    grid=_grid,
    make=make,
    rows=lambda shape: shape.total_q,
    expected=expected,
    pick=pick,
    cost=cost,
    redraw=redraw,
    spoil=spoil,
)
