"""What DSA leaves as it is in a transformer: norm, rotary embedding, gated MLP, mixture of experts.

Experts are DeepSeekMoE's (2024, section 3): each token goes to a few of many small MLPs, and to one that all tokens share. The
router is DeepSeek-V3's (report, equations 12 to 16, and its choice by groups; sglang 0.5.23 topk.py:1780): scores are sigmoids;
a bias per expert, which training moves to balance the load, counts in the choice and not in the weight; the groups with the best
two experts are kept, and the best experts of those chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.sizes import ExpertSizes


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


@dataclass(frozen=True, slots=True)
class ExpertRouter:
    """Who computes a token, and with which weight."""

    widths: ExpertSizes
    gate: torch.Tensor
    """[experts, hidden]."""
    bias: torch.Tensor
    """[experts] float32: e_score_correction_bias."""

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Map x [T, hidden] to experts [T, k] int64 and weights [T, k] float32, which sum to the scaling factor."""
        widths = self.widths
        scores = functional.linear(x, self.gate).float().sigmoid()
        wanted = scores + self.bias
        grouped = wanted.view(len(x), widths.groups, -1)
        merit = grouped.topk(2, dim=-1).values.sum(-1)
        kept = torch.zeros_like(merit, dtype=torch.bool)
        kept.scatter_(1, merit.topk(widths.kept_groups, dim=-1).indices, value=True)
        wanted = grouped.masked_fill(~kept.unsqueeze(-1), -torch.inf).flatten(1)
        chosen = wanted.topk(widths.per_token, dim=-1).indices
        weights = scores.gather(1, chosen)
        return chosen, widths.scaling * weights / weights.sum(-1, keepdim=True)


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """The MLP of a layer: shared(x) + Σ weight · expert(x)."""

    router: ExpertRouter
    shared: GatedMlp
    routed: tuple[GatedMlp, ...]
    first: int = 0
    """Number of the first of `routed`: a rank may have only some of the experts."""

    def __call__(self, x: torch.Tensor, counters: EngineCounters) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden]. Each expert that somebody chose runs once, on all of its tokens."""
        chosen, weights = self.router(x)
        out = self.shared(x)
        places = chosen.flatten()
        order = places.argsort(stable=True)
        loads = torch.bincount(places, minlength=self.router.widths.routed).tolist()
        tokens = torch.split(order.div(chosen.shape[1], rounding_mode="floor"), loads)
        scales = torch.split(weights.flatten()[order].to(x.dtype).unsqueeze(1), loads)
        for expert, mlp in enumerate(self.routed, self.first):
            if load := loads[expert]:
                computed = mlp(x[tokens[expert]])
                out.index_add_(0, tokens[expert], computed.mul_(scales[expert]))
                counters.expert_tokens[expert] += load
        return out
