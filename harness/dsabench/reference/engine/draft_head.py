"""The draft head: one more layer that guesses the token after next (DeepSeek-V3 report, section 2.2, one MTP module).

For token p it takes the token's embedding and the trunk's final hidden state of the token before, both normed, projects
the two to one vector, runs a DSA layer with a cache of its own, and shares the trunk's embedding and output matrix. Row
p of its cache therefore depends on tokens 0 … p only, as the trunk's rows do, and prefixes can be shared. (SGLang's
deepseek_nextn.py stores the same vector one place earlier.)

A head of random weights would agree with a random trunk about never, and speculation would be all cost. So the head is
distilled: its layer is the trunk's last one, and its projection is the ridge regression, on seeded random text, from
what it sees to what the trunk feeds its last layer. Speculation is exact whatever these weights are; they decide only
how often a draft is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from dsabench.reference.engine import latent_cache
from dsabench.reference.engine.batch import Batch, Prefill, Span
from dsabench.reference.engine.counters import Counters
from dsabench.reference.engine.latent_cache import LayerCache
from dsabench.reference.engine.layers import rms_norm
from dsabench.reference.engine.transformer import Block, Transformer

_LENGTH = 2560
_BYTES = 256
_RIDGE = 1.0
"""Added to the diagonal of Xᵀ X, whose entries are about the number of tokens."""


@dataclass(frozen=True, slots=True)
class DraftHead:
    """A layer behind a projection; embedding, norms and output matrix are the trunk's."""

    trunk: Transformer
    project: torch.Tensor
    """eh_proj: [hidden, 2 · hidden], from embedding and hidden state."""
    block: Block

    def hidden(self, batch: Batch, before: torch.Tensor, cache: LayerCache, counters: Counters) -> torch.Tensor:
        """Run the batch's tokens; `before` [T, hidden] is the hidden state in front of each → [T, hidden]."""
        x = functional.linear(_inputs(self.trunk, batch.tokens, before), self.project)
        return self.block(x, self.trunk.start(batch, counters), cache)


def _inputs(trunk: Transformer, tokens: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """What the projection takes: [T] tokens and [T, hidden] hidden states → [T, 2 · hidden]."""
    embedded = functional.embedding(tokens, trunk.embedding)
    eps, ones = trunk.size.norm_eps, torch.ones_like(trunk.norm)
    return torch.cat((rms_norm(embedded, ones, eps), rms_norm(before, ones, eps)), dim=-1)


@torch.inference_mode()
def distil(trunk: Transformer, seed: int) -> DraftHead:
    """Distil a head from the trunk."""
    batch = _text(trunk, seed)
    caches = latent_cache.allocate(trunk.size, len(batch.tokens), "bfloat16", trunk.embedding.device.type)
    last = trunk.blocks[-1]
    target = replace(trunk, blocks=trunk.blocks[:-1]).hidden(batch, caches[:-1], Counters())
    final = last(target, trunk.start(batch, Counters()), caches[-1])
    x = _inputs(trunk, batch.tokens, shifted(final, batch)).float()
    diagonal = _RIDGE * torch.eye(x.shape[1], device=x.device)
    solved = torch.linalg.solve(x.T @ x + diagonal, x.T @ target.float())
    block = replace(last, attention=replace(last.attention, indexed=True))  # nothing selects before it
    return DraftHead(trunk, solved.T.to(trunk.embedding.dtype).contiguous(), block)


def shifted(hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Hidden states [T, hidden] in front of each token of a prefill; zeros in front of each span's first."""
    assert isinstance(batch.shape, Prefill), "only prefill has spans"
    before = hidden.roll(1, dims=0)
    before[[span.start for span in batch.shape.spans]] = 0.0
    return before


def _text(trunk: Transformer, seed: int) -> Batch:
    """Random bytes, as one sequence that is no longer than the trunk's rotary table."""
    length, device = min(_LENGTH, len(trunk.rope)), trunk.embedding.device
    slots = torch.arange(length, device=device)
    tokens = torch.randint(_BYTES, (length,), generator=torch.Generator().manual_seed(seed)).to(device)
    return Batch(tokens, slots, slots, slots, slots, "dense_mha", Prefill((Span(0, length, slots, slots),)))
