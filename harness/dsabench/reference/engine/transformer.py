"""The whole model: embedding, layers of attention and MLP with residuals, final norm, output projection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.nn import functional

from dsabench.reference.engine.batch import ForwardBatch, ForwardPass
from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.kv_cache import LayerCache
from dsabench.reference.engine.layers import GatedMlp, MixtureOfExperts, rms_norm
from dsabench.reference.engine.mla import LatentAttention
from dsabench.reference.engine.ranks import ALONE, RankGroups, all_reduce_sum
from dsabench.reference.engine.sizes import ModelSize


@dataclass(frozen=True, slots=True)
class TransformerBlock:
    """One layer: x + attention(norm(x)), then x + mlp(norm(x))."""

    attention_norm: torch.Tensor
    attention: LatentAttention
    mlp_norm: torch.Tensor
    mlp: GatedMlp | MixtureOfExperts

    def __call__(self, x: torch.Tensor, now: ForwardPass, cache: LayerCache) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden]."""
        eps = self.attention.size.norm_eps
        if len(x):  # with DP attention a group may have no tokens, and only take part in the others' MLPs
            x = x + all_reduce_sum(self.attention(rms_norm(x, self.attention_norm, eps), now, cache), now.ranks.heads)
        mlp = self.mlp if isinstance(self.mlp, GatedMlp) else partial(self.mlp, counters=now.counters)
        return x + now.run_mlp(mlp, rms_norm(x, self.mlp_norm, eps))


@dataclass(frozen=True, slots=True)
class Transformer:
    """A model with its weights; the tokens it remembers are given from outside."""

    size: ModelSize
    embedding: torch.Tensor
    """[vocabulary, hidden]."""
    blocks: tuple[TransformerBlock, ...]
    norm: torch.Tensor
    head: torch.Tensor
    """[vocabulary, hidden]."""
    rope: torch.Tensor
    """Cosines and sines, [context, 2, R/2] in the model's dtype."""
    ranks: RankGroups = ALONE

    def hidden(
        self,
        batch: ForwardBatch,
        caches: list[LayerCache],
        counters: EngineCounters,
        token_counts: tuple[int, ...] | None = None,
    ) -> torch.Tensor:
        """Run the batch's tokens through all layers → the residual stream behind the last one, [T, hidden].

        Behind the caches of its layers there may be that of a draft head. `token_counts` is given where other groups of ranks bring tokens to the same pass.
        """
        x = functional.embedding(batch.tokens, self.embedding)
        now = replace(self.start(batch, counters), token_counts=token_counts)
        for block, cache in zip(self.blocks, caches, strict=False):
            x = block(x, now, cache)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map hidden states [T, hidden] to logits [T, vocabulary] float32."""
        return functional.linear(rms_norm(hidden, self.norm, self.size.norm_eps), self.head).float()

    def start(self, batch: ForwardBatch, counters: EngineCounters) -> ForwardPass:
        """Look up what all layers need."""
        cos, sin = self.rope[batch.positions].unsqueeze(2).unbind(1)
        return ForwardPass(batch, cos, sin, counters, self.ranks)
