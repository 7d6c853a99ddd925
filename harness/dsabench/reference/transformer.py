"""The whole model: embedding, layers of attention and MLP with residuals, final norm, output projection."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from dsabench.reference.attention import Attention
from dsabench.reference.batch import Batch
from dsabench.reference.counters import Counters
from dsabench.reference.latent_cache import LayerCache
from dsabench.reference.layers import GatedMlp, rms_norm
from dsabench.reference.sizes import ModelSize


@dataclass(frozen=True, slots=True)
class Block:
    """One layer: x + attention(norm(x)), then x + mlp(norm(x))."""

    attention_norm: torch.Tensor
    attention: Attention
    mlp_norm: torch.Tensor
    mlp: GatedMlp


@dataclass(frozen=True, slots=True)
class Transformer:
    """A model with its weights; the tokens it remembers are given from outside."""

    size: ModelSize
    embedding: torch.Tensor
    """[vocabulary, hidden]."""
    blocks: tuple[Block, ...]
    norm: torch.Tensor
    head: torch.Tensor
    """[vocabulary, hidden]."""
    rope: torch.Tensor
    """Cosines and sines, [context, 2, R/2] in the model's dtype."""

    def forward(self, batch: Batch, caches: list[LayerCache], counters: Counters) -> torch.Tensor:
        """Run the batch's tokens through all layers → logits [wanted rows, vocabulary] float32."""
        eps = self.size.norm_eps
        x = functional.embedding(batch.tokens, self.embedding)
        cos, sin = self.rope[batch.positions].unsqueeze(2).unbind(1)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = x + block.attention(rms_norm(x, block.attention_norm, eps), (cos, sin), batch, cache, counters)
            x = x + block.mlp(rms_norm(x, block.mlp_norm, eps))
        x = rms_norm(x[batch.wanted], self.norm, eps)
        return functional.linear(x, self.head).float()
