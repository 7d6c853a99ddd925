"""The draft head: one more layer that guesses the token after next (DeepSeek-V3 report, section 2.2, one MTP module).

For token p it takes the token's embedding and the trunk's final hidden state of the token before, both normed, projects
the two to one vector, runs a DSA layer with a cache of its own, and shares the trunk's embedding and output matrix. Row
p of its cache therefore depends on tokens 0 … p only, as the trunk's rows do, and prefixes can be shared. (SGLang's
deepseek_nextn.py stores the same vector one place earlier.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from dsabench.reference.batch import Batch
from dsabench.reference.counters import Counters
from dsabench.reference.latent_cache import LayerCache
from dsabench.reference.layers import rms_norm
from dsabench.reference.transformer import Block, Transformer


@dataclass(frozen=True, slots=True)
class DraftHead:
    """A layer behind a projection; embedding, norms and output matrix are the trunk's."""

    trunk: Transformer
    project: torch.Tensor
    """eh_proj: [hidden, 2 · hidden], from embedding and hidden state."""
    block: Block

    def hidden(self, batch: Batch, before: torch.Tensor, cache: LayerCache, counters: Counters) -> torch.Tensor:
        """Run the batch's tokens; `before` [T, hidden] is the hidden state in front of each → [T, hidden]."""
        x = functional.linear(inputs(self.trunk, batch.tokens, before), self.project)
        return self.block(x, self.trunk.start(batch, counters), cache)


def inputs(trunk: Transformer, tokens: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """What the projection takes: [T] tokens and [T, hidden] hidden states → [T, 2 · hidden]."""
    embedded = functional.embedding(tokens, trunk.embedding)
    eps, ones = trunk.size.norm_eps, torch.ones_like(trunk.norm)
    return torch.cat((rms_norm(embedded, ones, eps), rms_norm(before, ones, eps)), dim=-1)
