"""HiSparse: bring the selected tokens that are not in the device's hot buffer in from host memory.

Per sequence the device keeps S rows of the cache that may be given up, and behind them a page of PAGE rows whose first is
the newest token's; the host all L. `wanted` [B, K] int32: selected tokens of a decode step (-1: none). `held` [B, L]
int32: the buffer row of a token, -1 where only the host has it; the newest is always held, in row S. `oldest` [B, S]
int32: the S rows in the order in which they may be given up; rows of wanted tokens stand last. Each missing token takes
the next of `oldest`, its row of `host` [B · L, ...] (pinned where there is a GPU) is copied to `buffer` [B · (S + PAGE),
...], and the answer is the buffer row of every wanted token, [B, K] int32 through all sequences, -1 for none. A row is D
bfloat16 or a packed row's bytes (`kv_layout`); copies are compared as they are, bytes as numbers.

All S rows hold tokens, as after many steps, as far as there are so many. A tenth of the wanted is missing, the same number
in every sequence and draw: the time is that of what is missing. Rows of tokens that are held and not wanted may hold
anything: nothing reads them. The tables are not updated, so that a call can be repeated; a kernel that keeps tables of its
own puts them back (`candidate.Renewing`). Source: sglang's jit_kernel/hisparse.py and managers/hisparse_coordinator.py
(index_topk 2048, device_buffer_size 6144; 4096 unless told).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from dsakernels import inputs as draw
from dsakernels import shape as shapes
from dsakernels.kv_layout import PackedLayout
from dsakernels.operator import Dtype, MinimumCost, Operator
from dsakernels.shape import OperatorShape

HELD_PER_TOPK = 3
"""Rows of the hot buffer for each of index_topk: 6144 / 2048."""
_HIT = 0.9


@dataclass(frozen=True, slots=True)
class SwapInInputs:
    """See the module's docstring."""

    shape: OperatorShape
    host: torch.Tensor
    buffer: torch.Tensor
    wanted: torch.Tensor
    held: torch.Tensor
    oldest: torch.Tensor

    @property
    def first_rows(self) -> torch.Tensor:
        """The first buffer row of each sequence, [B, 1]."""
        batch = self.shape.batch
        return torch.arange(batch, device=self.held.device).unsqueeze(1) * (len(self.buffer) // batch)


def buffered(shape: OperatorShape) -> int:
    """S: rows of a sequence's buffer that may be given up."""
    return HELD_PER_TOPK * shape.dimensions.index_topk


def missing(shape: OperatorShape) -> int:
    """Wanted tokens of a sequence that only the host has."""
    return round(min(shape.dimensions.index_topk, shape.kv_tokens) * (1 - _HIT))


def make(shape: OperatorShape, dtype: Dtype, generator: torch.Generator) -> SwapInInputs:
    """Fresh inputs; 9 of 10 wanted tokens are held (an assumption: real hit rates depend on the text)."""
    model = shape.dimensions
    if dtype == "fp8":
        host = draw.packed(shape.total_kv, PackedLayout(model.latent, model.rope), generator)
    else:
        host = draw.normal((shape.total_kv, model.width), generator)
    return _swap(shape, host.cpu().pin_memory() if generator.device.type == "cuda" else host, generator)


def redraw(inputs: SwapInInputs, generator: torch.Generator) -> SwapInInputs:
    """Fresh selections and another buffer over the same host memory."""
    return _swap(inputs.shape, inputs.host, generator)


def _swap(shape: OperatorShape, host: torch.Tensor, generator: torch.Generator) -> SwapInInputs:
    device = generator.device
    first = torch.arange(shape.batch, device=device).unsqueeze(1) * shape.kv_tokens
    selected = draw.selection(shape, generator)
    wanted = torch.where(selected >= 0, selected - first, -1)
    sequences = [_hold(shape, mine[mine >= 0].long(), generator) for mine in wanted]
    held, oldest = (torch.stack(tables) for tables in zip(*sequences, strict=True))
    buffer = torch.empty(shape.batch * (buffered(shape) + draw.PAGE), host.shape[1], dtype=host.dtype, device=device)
    buffer.fill_(_never(buffer))
    inputs = SwapInInputs(shape, host, buffer, wanted.int(), held, oldest)
    places, is_held = _held_rows(inputs)
    tokens = (wanted + first)[is_held]
    buffer[places[is_held]] = host[tokens.to(host.device)].to(device)
    return inputs


def _hold(shape: OperatorShape, wanted: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """`held` [L] and `oldest` [S] of one sequence."""
    device, size, newest = generator.device, buffered(shape), shape.kv_tokens - 1
    rest = torch.ones(shape.kv_tokens, dtype=torch.bool, device=device)
    rest[wanted] = False
    rest[newest] = False
    older = _shuffled(wanted[wanted != newest], generator)
    kept = older[missing(shape) :]
    others = _shuffled(rest.nonzero().squeeze(1), generator)[: size - len(kept)]
    oldest = torch.randperm(size, generator=generator, device=device).int()
    held = torch.full((shape.kv_tokens,), -1, dtype=torch.int32, device=device)
    held[torch.cat((others, kept))] = oldest[size - len(others) - len(kept) :]
    held[newest] = size
    return held, oldest


def _shuffled(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return values[torch.randperm(len(values), generator=generator, device=values.device)]


def _held_rows(inputs: SwapInInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Buffer row of every wanted token and whether it is held, both [B, K]."""
    rows = inputs.held.gather(1, inputs.wanted.clamp(min=0).long())
    return rows.long() + inputs.first_rows, (rows >= 0) & (inputs.wanted >= 0)


def _never(rows: torch.Tensor) -> float:
    """What no row is full of: NaN; as a byte 0xFF, which is NaN in all three parts of a packed row."""
    return math.nan if rows.dtype.is_floating_point else 255


def spoil(inputs: SwapInInputs) -> None:
    """Rows of the buffer that hold no wanted token are overwritten: there the missing ones have to arrive, by this call."""
    places, is_held = _held_rows(inputs)
    is_free = torch.ones(len(inputs.buffer), dtype=torch.bool, device=inputs.buffer.device)
    is_free[places[is_held]] = False
    inputs.buffer[is_free] = _never(inputs.buffer)


def expected(inputs: SwapInInputs, rows: torch.Tensor) -> torch.Tensor:
    """The rows of the wanted tokens, 0 for none: [rows, K, D] float64."""
    wanted = inputs.wanted[rows].long()
    tokens = (wanted.clamp(min=0) + rows.unsqueeze(1) * inputs.shape.kv_tokens).cpu()
    values = inputs.host[tokens.to(inputs.host.device)].to(rows.device).double()
    return values.masked_fill((wanted < 0).unsqueeze(2), 0.0)


def pick(inputs: SwapInInputs, output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """What lies in the buffer where the answer says that it does; NaN where that is not in the sequence's own rows, or is
    said of no token.
    """
    places = output[rows].long()
    values = inputs.buffer[places.clamp(0, len(inputs.buffer) - 1)].double()
    absent = inputs.wanted[rows] < 0
    first = inputs.first_rows[rows]
    own = (places >= first) & (places < first + len(inputs.buffer) // inputs.shape.batch)
    bad = torch.where(absent, places != -1, ~own)
    return values.masked_fill(absent.unsqueeze(2), 0.0).masked_fill(bad.unsqueeze(2), torch.nan)


def cost(shape: OperatorShape, dtype: Dtype) -> MinimumCost:
    """The missing rows over the host's link and into the buffer, and the look-up of all that are wanted."""
    model = shape.dimensions
    copied = shape.batch * missing(shape) * (model.packed_bytes if dtype == "fp8" else 2 * model.width)
    return MinimumCost(2 * copied + 12 * shape.total_q * model.index_topk, 0, link_bytes=copied)


def _grid() -> tuple[OperatorShape, ...]:
    return tuple(OperatorShape("v3.2", 128, b, 1, kv) for b in (1, 8, 32) for kv in (8192, 32768) if b * kv <= 1 << 19)


HISPARSE_SWAP_IN = Operator(
    name="hisparse_swap_in",
    does="missing selected rows from host memory into the hot buffer",
    dtypes=("bf16", "fp8"),
    tolerance={"bf16": 0.0, "fp8": 0.0},
    small=tuple(shape for shape in shapes.SMALL_DECODE if shape.kv_tokens >= 256),
    grid=_grid,
    make=make,
    rows=lambda shape: shape.total_q,
    expected=expected,
    pick=pick,
    cost=cost,
    parts=lambda shape: max(1, missing(shape)),
    redraw=redraw,
    spoil=spoil,
)
