"""Weights of the draft head, made so that it agrees with the trunk often.

A draft head of random weights would agree with a random trunk about never, and speculation would be all cost. So the
head is distilled: its layer is the trunk's last one, and its projection is the ridge regression, on seeded random
text, from what it sees to what the trunk feeds its last layer. Speculation is exact whatever these weights are; they
decide only how often a draft is accepted.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from dsabench.reference import draft_head, latent_cache
from dsabench.reference.batch import Batch, Prefill, Span
from dsabench.reference.counters import Counters
from dsabench.reference.draft_head import DraftHead
from dsabench.reference.transformer import Transformer

_LENGTH = 2560
_BYTES = 256
_RIDGE = 1.0
"""Added to the diagonal of Xᵀ X, whose entries are about the number of tokens."""


@torch.inference_mode()
def build(trunk: Transformer, seed: int) -> DraftHead:
    """Distil a head from the trunk."""
    batch = _text(trunk, seed)
    caches = latent_cache.allocate(trunk.size, len(batch.tokens), "bfloat16", trunk.embedding.device.type)
    last = trunk.blocks[-1]
    target = replace(trunk, blocks=trunk.blocks[:-1]).hidden(batch, caches[:-1], Counters())
    final = last(target, trunk.start(batch, Counters()), caches[-1])
    x = draft_head.inputs(trunk, batch.tokens, shifted(final, batch)).float()
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
