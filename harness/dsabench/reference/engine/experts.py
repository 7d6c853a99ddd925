"""Mixture of experts: each token goes to a few of many small MLPs, and to one that all tokens share.

DeepSeekMoE (2024, section 3) with the router of DeepSeek-V3 (report, equations 12 to 16, and its choice by groups;
sglang 0.5.23 topk.py:1780): scores are sigmoids; a bias per expert, which training moves to balance the load, counts in
the choice and not in the weight; the groups with the best two experts are kept, and the best experts of those chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from dsabench.reference.engine.counters import Counters
from dsabench.reference.engine.layers import GatedMlp
from dsabench.reference.engine.sizes import Experts


@dataclass(frozen=True, slots=True)
class Router:
    """Who computes a token, and with which weight."""

    widths: Experts
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

    router: Router
    shared: GatedMlp
    routed: tuple[GatedMlp, ...]
    first: int = 0
    """Number of the first of `routed`: a rank may have only some of the experts."""

    def __call__(self, x: torch.Tensor, counters: Counters) -> torch.Tensor:
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
