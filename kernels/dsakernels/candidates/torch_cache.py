"""What surrounds attention, in plain PyTorch: cache rows packed, unpacked and swapped in, and the products before and after it.

On a GPU the products are cuBLAS's, as sglang has it for bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsakernels.candidates.candidate import Call, KernelCandidate
from dsakernels.kv_layout import E4M3_MAX, GROUPS, pack, unpack
from dsakernels.operators.absorb import AbsorbInputs
from dsakernels.operators.hisparse_swap_in import SwapInInputs
from dsakernels.operators.kv_expand import ExpandInputs, split
from dsakernels.operators.kv_pack import DequantiseInputs, QuantiseInputs


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


def _copy_missing(inputs: SwapInInputs) -> Call:
    """Finds what is missing, gives it rows in the order of `oldest`, copies only that."""
    return _copying(inputs, lambda _wanted, missing: missing)


def _copy_all(inputs: SwapInInputs) -> Call:
    """Copies every wanted row, held or not: no list of what is missing, more bytes."""
    return _copying(inputs, lambda wanted, _missing: wanted >= 0)


def _copying(inputs: SwapInInputs, pick: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Call:
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


def _places(inputs: SwapInInputs, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Buffer row of every wanted token and which of them are missing, both [B, K]."""
    held = inputs.held.gather(1, wanted.clamp(min=0)).long()
    missing = (held < 0) & (wanted >= 0)
    turn = (missing.cumsum(1) - 1).clamp(min=0)
    return torch.where(missing, inputs.oldest.gather(1, turn).long(), held), missing


def _one_product(inputs: ExpandInputs) -> Call:
    """All heads in one product, then the keys are joined from it and the rotary part."""
    tokens, nope = inputs.shape.total_kv, inputs.shape.dimensions.nope

    def call() -> torch.Tensor:
        out = _buffer(inputs)
        torch.mm(inputs.latent, inputs.weight, out=out[: tokens * inputs.parts[0]].view(tokens, -1))
        product, keys = split(inputs, out)
        keys[..., :nope] = product[..., :nope]
        keys[..., nope:] = inputs.rope.unsqueeze(1)
        return out

    return call


def _by_head(inputs: ExpandInputs) -> Call:
    """A product a head, of the keys' and the values' columns."""
    heads, nope = inputs.shape.heads, inputs.shape.dimensions.nope
    weight = inputs.weight.view(len(inputs.weight), heads, -1).transpose(0, 1).contiguous()

    def call() -> torch.Tensor:
        out = _buffer(inputs)
        product, keys = split(inputs, out)
        product.copy_((inputs.latent @ weight).transpose(0, 1))
        keys[..., :nope] = product[..., :nope]
        keys[..., nope:] = inputs.rope.unsqueeze(1)
        return out

    return call


def _bmm(inputs: AbsorbInputs) -> Call:
    """Both write into their part of the answer."""
    latent, width = inputs.w_key.shape[2], inputs.w_key.shape[2] + inputs.w_value.shape[2]
    q, attended = inputs.q.transpose(0, 1), inputs.out.transpose(0, 1)

    def call() -> torch.Tensor:
        out = inputs.q.new_empty(*inputs.q.shape[:2], width)
        torch.bmm(q, inputs.w_key, out=out[..., :latent].transpose(0, 1))
        torch.bmm(attended, inputs.w_value, out=out[..., latent:].transpose(0, 1))
        return out

    return call


def _einsum(inputs: AbsorbInputs) -> Call:
    """Two einsums, joined."""

    def call() -> torch.Tensor:
        into = torch.einsum("thn,hnc->thc", inputs.q, inputs.w_key)
        back = torch.einsum("thc,hcf->thf", inputs.out, inputs.w_value)
        return torch.cat((into, back), dim=-1)

    return call


def _buffer(inputs: ExpandInputs) -> torch.Tensor:
    return inputs.latent.new_empty(inputs.shape.total_kv * sum(inputs.parts))


CANDIDATES = (
    KernelCandidate("torch_pack", "kv_quantise", "scales on bfloat16's grid, three parts joined", ("fp8",), _pack),
    KernelCandidate(
        "torch_pack_in_place", "kv_quantise", "float32 scales, parts written in place", ("fp8",), _pack_in_place
    ),
    KernelCandidate("torch_unpack", "kv_dequantise", "bits moved by integer operations", ("fp8",), _unpack),
    KernelCandidate("torch_cast", "kv_dequantise", "torch's conversion from e4m3", ("fp8",), _cast),
    KernelCandidate(
        "torch_copy_missing",
        "hisparse_swap_in",
        "copies what is missing",
        ("bf16", "fp8"),
        _copy_missing,
        captures=False,
    ),
    KernelCandidate(
        "torch_copy_all", "hisparse_swap_in", "copies all that is wanted", ("bf16", "fp8"), _copy_all, captures=False
    ),
    KernelCandidate("torch_mm", "kv_expand", "one product of all heads, keys joined", ("bf16",), _one_product),
    KernelCandidate("torch_by_head", "kv_expand", "a product a head, keys joined", ("bf16",), _by_head),
    KernelCandidate("torch_bmm", "absorb", "two batched products", ("bf16",), _bmm),
    KernelCandidate("torch_einsum", "absorb", "two einsums", ("bf16",), _einsum),
)
