"""A rank's part of a model: the same modules with fewer heads, narrower MLPs and fewer experts.

Heads are split with their rows of the up-projections and their columns of the output matrix, MLPs by columns of the
hidden layer (Megatron-LM, section 3). The rest, router and indexer among it, is on every rank. What attention and MLP
return is then one summand of the whole; `ranks` adds up.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from dsabench.reference.engine.layers import GatedMlp, MixtureOfExperts
from dsabench.reference.engine.layout import EqualPart, RankPlacement
from dsabench.reference.engine.mla import LatentAttention
from dsabench.reference.engine.ranks import RankGroups
from dsabench.reference.engine.transformer import Transformer, TransformerBlock


def shard(model: Transformer, ranks: RankGroups) -> Transformer:
    """The part of a rank, which sums with the others."""
    return replace(model, blocks=tuple(shard_block(block, ranks.seat) for block in model.blocks), ranks=ranks)


def shard_block(block: TransformerBlock, seat: RankPlacement) -> TransformerBlock:
    """A rank's part of one layer."""
    mlp = block.mlp
    own = _mlp(mlp, seat.mlp) if isinstance(mlp, GatedMlp) else _mixture(mlp, seat)
    return replace(block, attention=_attention(block.attention, seat.heads), mlp=own)


def shard_for_group(block: TransformerBlock, seat: RankPlacement) -> TransformerBlock:
    """The same where only the ranks of one group sum, as the draft head's do."""
    return shard_block(block, RankPlacement(heads=seat.heads, mlp=seat.heads, inside_expert=seat.heads))


def _attention(attention: LatentAttention, part: EqualPart) -> LatentAttention:
    size, w = attention.size, attention.weights
    own, head = part.of_range(size.heads), size.nope + size.rope
    rows_of_heads = w.q_up[: size.heads * head].view(size.heads, head, -1)
    weights = replace(
        w,
        q_up=torch.cat((rows_of_heads[own].flatten(0, 1), w.q_up[size.heads * head :])),
        kv_up=w.kv_up.view(size.heads, -1, size.latent)[own].flatten(0, 1).contiguous(),
        key_up=w.key_up[own].contiguous(),
        value_up=w.value_up[own].contiguous(),
        out=w.out[:, part.of_range(size.heads * size.value)].contiguous(),
    )
    return replace(attention, size=replace(size, heads=size.heads // part.of), weights=weights)


def _mlp(mlp: GatedMlp, part: EqualPart) -> GatedMlp:
    own = part.of_range(mlp.down.shape[1])
    gate_up = mlp.gate_up.view(2, mlp.down.shape[1], -1)[:, own].flatten(0, 1)
    return GatedMlp(gate_up.contiguous(), mlp.down[:, own].contiguous())


def _mixture(mixture: MixtureOfExperts, seat: RankPlacement) -> MixtureOfExperts:
    own = seat.experts.of_range(len(mixture.routed))
    routed = tuple(_mlp(expert, seat.inside_expert) for expert in mixture.routed[own])
    return replace(mixture, shared=_mlp(mixture.shared, seat.mlp), routed=routed, first=own.start)
