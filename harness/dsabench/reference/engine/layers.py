"""The parts of a transformer that DSA does not change: norm, rotary embedding, gated MLP."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x / √(mean(x²) + eps) · weight over the last dimension, computed in float32 inside."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def rope_table(positions: int, width: int, theta: float, device: str) -> torch.Tensor:
    """Cosines and sines [positions, 2, width / 2] float32 of position · theta^(-2i/width) (RoFormer, equation 15)."""
    frequencies = theta ** -(torch.arange(0, width, 2, device=device).float() / width)
    angles = torch.outer(torch.arange(positions, device=device).float(), frequencies)
    return torch.stack((angles.cos(), angles.sin()), dim=1)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate x [T, heads, R] by cos and sin [T, 1, R/2]. Dimension i is paired with i + R/2 (GPT-NeoX's layout)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rotate_first(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the first R of x's dimensions, as many as cos and sin are for, and leave the others."""
    width = 2 * cos.shape[-1]
    return torch.cat((rotate(x[..., :width], cos, sin), x[..., width:]), dim=-1)


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """SwiGLU: down(silu(gate(x)) · up(x)), with gate and up in one matrix [2 · intermediate, hidden]."""

    gate_up: torch.Tensor
    down: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden]."""
        gate, up = functional.linear(x, self.gate_up).chunk(2, dim=-1)
        return functional.linear(functional.silu(gate).mul_(up), self.down)
