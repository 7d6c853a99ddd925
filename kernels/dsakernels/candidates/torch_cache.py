"""Quantise, dequantise and swap-in in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsakernels.candidates.candidate import Call, Candidate
from dsakernels.kv_layout import E4M3_MAX, GROUPS, pack, unpack
from dsakernels.operators.hisparse_swap_in import SwapInputs
from dsakernels.operators.kv_dequantise import DequantiseInputs
from dsakernels.operators.kv_quantise import QuantiseInputs


def _pack(inputs: QuantiseInputs) -> Call:
    return lambda: pack(inputs.rows, inputs.layout)


def _pack_in_place(inputs: QuantiseInputs) -> Call:
    """Writes the three parts into one buffer, with float32 scales."""
    layout, rows = inputs.layout, inputs.rows
    tail = layout.latent + 4 * GROUPS

    def call() -> torch.Tensor:
        out = torch.empty(len(rows), layout.row_bytes, dtype=torch.uint8, device=rows.device)
        groups = rows[:, : layout.latent].float().view(-1, GROUPS, layout.group)
        scales = groups.abs().amax(-1) / E4M3_MAX
        quantised = (groups / scales.unsqueeze(-1)).to(torch.float8_e4m3fn)
        out[:, : layout.latent] = quantised.view(torch.uint8).flatten(1)
        out[:, layout.latent : tail] = scales.view(torch.uint8)
        out[:, tail:] = rows[:, layout.latent :].contiguous().view(torch.uint8)
        return out

    return call


def _unpack(inputs: DequantiseInputs) -> Call:
    slots = inputs.slots.long()
    return lambda: unpack(inputs.cache.index_select(0, slots), inputs.layout, torch.bfloat16)


def _cast(inputs: DequantiseInputs) -> Call:
    """With torch's own conversion from e4m3, in float32."""
    layout, slots = inputs.layout, inputs.slots.long()
    tail = layout.latent + 4 * GROUPS

    def call() -> torch.Tensor:
        packed = inputs.cache.index_select(0, slots)
        latent = packed[:, : layout.latent].view(torch.float8_e4m3fn).float().view(-1, GROUPS, layout.group)
        scales = packed[:, layout.latent : tail].view(torch.float32).unsqueeze(-1)
        rope = packed[:, tail:].view(torch.bfloat16)
        return torch.cat(((latent * scales).to(torch.bfloat16).flatten(1), rope), dim=1)

    return call


def _copy_missing(inputs: SwapInputs) -> Call:
    """Finds what is missing, gives it rows in the order of `oldest`, copies only that."""
    return _copying(inputs, lambda _wanted, missing: missing)


def _copy_all(inputs: SwapInputs) -> Call:
    """Copies every wanted row, held or not: no list of what is missing, more bytes."""
    return _copying(inputs, lambda wanted, _missing: wanted >= 0)


def _copying(inputs: SwapInputs, pick: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Call:
    """`pick`: (wanted tokens, which of them are missing) → which rows are copied, all [B, K]."""
    first_rows, wanted = inputs.first_rows, inputs.wanted.long()
    first_tokens = torch.arange(inputs.shape.batch, device=wanted.device).unsqueeze(1) * inputs.shape.kv_tokens

    def call() -> torch.Tensor:
        places, missing = _places(inputs, wanted)
        copied = pick(wanted, missing)
        tokens = (wanted + first_tokens)[copied]
        absolute = places + first_rows
        inputs.buffer[absolute[copied]] = inputs.host[tokens.to(inputs.host.device)].to(inputs.buffer.device)
        return torch.where(wanted >= 0, absolute, -1).int()

    return call


def _places(inputs: SwapInputs, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Buffer row of every wanted token and which of them are missing, both [B, K]."""
    held = inputs.held.gather(1, wanted.clamp(min=0)).long()
    missing = (held < 0) & (wanted >= 0)
    turn = (missing.cumsum(1) - 1).clamp(min=0)
    return torch.where(missing, inputs.oldest.gather(1, turn).long(), held), missing


CANDIDATES = (
    Candidate("torch_pack", "kv_quantise", "scales on bfloat16's grid, three parts joined", ("fp8",), _pack),
    Candidate("torch_pack_in_place", "kv_quantise", "float32 scales, parts written in place", ("fp8",), _pack_in_place),
    Candidate("torch_unpack", "kv_dequantise", "bits moved by integer operations", ("fp8",), _unpack),
    Candidate("torch_cast", "kv_dequantise", "torch's conversion from e4m3", ("fp8",), _cast),
    Candidate(
        "torch_copy_missing",
        "hisparse_swap_in",
        "copies what is missing",
        ("bf16", "fp8"),
        _copy_missing,
        captures=False,
    ),
    Candidate(
        "torch_copy_all", "hisparse_swap_in", "copies all that is wanted", ("bf16", "fp8"), _copy_all, captures=False
    ),
)
