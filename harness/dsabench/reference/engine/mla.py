"""Multi-head latent attention with a lightning indexer (DeepSeek-V2, section 2.1; DeepSeek-V3.2-Exp, section 2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from dsabench.reference.engine.batch import DecodeBatch, ForwardPass
from dsabench.reference.engine.indexer import IndexerQueries, LightningIndexer
from dsabench.reference.engine.kv_cache import LayerCache
from dsabench.reference.engine.layers import rms_norm, rotate, rotate_first
from dsabench.reference.engine.sizes import ModelSize
from dsabench.reference.engine.sparse_attention import SparseAttention, dense_mha


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Matrices of one layer, [out, in]. Those that read the same input lie in one matrix, so that it is read once."""

    down: torch.Tensor
    """From hidden: query latent [q_lora], cache row [C + R], indexer key [E], indexer weights [I]."""
    q_norm: torch.Tensor
    kv_norm: torch.Tensor
    index_norm: torch.Tensor
    index_norm_bias: torch.Tensor
    q_up: torch.Tensor
    """From the query latent: heads [H · (nope + R)], indexer queries [I · E]."""
    kv_up: torch.Tensor
    """From the latent: keys and values of each head, [H · (nope + value), C]."""
    key_up: torch.Tensor
    """The keys' half of kv_up as [H, nope, C]: W_uk."""
    value_up: torch.Tensor
    """The values' half of kv_up as [H, C, value]: W_uv."""
    out: torch.Tensor
    """[hidden, H · value]."""


def absorbed(size: ModelSize, kv_up: torch.Tensor) -> dict[str, torch.Tensor]:
    """`kv_up` and its two halves, as `AttentionWeights` has them."""
    by_head = kv_up.view(size.heads, size.nope + size.value, size.latent)
    return {
        "kv_up": kv_up,
        "key_up": by_head[:, : size.nope].contiguous(),
        "value_up": by_head[:, size.nope :].transpose(1, 2).contiguous(),
    }


@dataclass(frozen=True, slots=True)
class ProjectedTokens:
    """What a layer computes of its T new tokens before it attends."""

    q_nope: torch.Tensor
    """[T, H, nope]."""
    q_rope: torch.Tensor
    """[T, H, R], rotated."""
    rows: torch.Tensor
    """[T, D], normed latent and rotated part, as cached."""
    index: IndexerQueries | None
    index_k: torch.Tensor | None
    """[T, E]. Both are None where the layer has no indexer."""


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """The attention of one layer."""

    size: ModelSize
    weights: AttentionWeights
    indexed: bool = True
    """False: the layer attends to what the one before it selected. Its indexer's weights are then not used."""

    def __call__(self, x: torch.Tensor, now: ForwardPass, cache: LayerCache) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden]. Stores the new tokens first."""
        new = self._project(x, now.cos, now.sin)
        batch = now.batch
        if isinstance(batch.shape, DecodeBatch) and batch.shape.hot is not None:
            batch.shape.hot.write(cache, batch.slots, new.rows, new.index_k)
        else:
            cache.write(batch.row_slots, batch.slots, new.rows, new.index_k)
        attend = self._dense if now.batch.path == "dense_mha" else self._sparse
        return functional.linear(attend(new, now, cache), self.weights.out)

    def _project(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> ProjectedTokens:
        size, w, head = self.size, self.weights, self.size.nope + self.size.rope
        down, q_up = w.down, w.q_up
        widths = [size.q_lora, size.latent, size.rope, size.index_dim + size.index_heads]
        if not self.indexed:  # the indexer's rows are the last
            down, q_up, widths = down[: size.q_lora + size.row], q_up[: size.heads * head], [*widths[:3], 0]
        q_latent, latent, k_rope, of_indexer = torch.split(functional.linear(x, down), widths, dim=-1)
        q_latent = rms_norm(q_latent, w.q_norm, size.norm_eps)
        up = functional.linear(q_latent, q_up)
        q, index_q = up[:, : size.heads * head], up[:, size.heads * head :]
        q_nope, q_rope = torch.split(q.view(-1, size.heads, head), [size.nope, size.rope], dim=-1)
        latent = rms_norm(latent, w.kv_norm, size.norm_eps)
        rows = torch.cat((latent, rotate(k_rope.unsqueeze(1), cos, sin).squeeze(1)), dim=-1)
        q_rope = rotate(q_rope, cos, sin)
        if not self.indexed:
            return ProjectedTokens(q_nope, q_rope, rows, None, None)
        index_k, index_weights = torch.split(of_indexer, [size.index_dim, size.index_heads], dim=-1)
        index_k = functional.layer_norm(index_k, (size.index_dim,), w.index_norm, w.index_norm_bias, size.norm_eps)
        index = IndexerQueries(
            rotate_first(index_q.view(-1, size.index_heads, size.index_dim), cos, sin),
            index_weights.float() * (size.index_heads * size.index_dim) ** -0.5,
        )
        return ProjectedTokens(q_nope, q_rope, rows, index, rotate_first(index_k.unsqueeze(1), cos, sin).squeeze(1))

    def _dense(self, new: ProjectedTokens, now: ForwardPass, cache: LayerCache) -> torch.Tensor:
        assert not isinstance(now.batch.shape, DecodeBatch), "decode is always sparse"
        q = torch.cat((new.q_nope, new.q_rope), dim=-1)
        outs = []
        for span in now.batch.shape.spans:
            if cache.layer == 0:
                now.counters.tokens["prefill.dense_mha"] += span.new_tokens
            rows = cache.read(span.row_slots, q.dtype)
            outs.append(dense_mha(q[span.start : span.stop], rows, self.weights.kv_up, self.size))
        return torch.cat(outs).flatten(1)

    def _sparse(self, new: ProjectedTokens, now: ForwardPass, cache: LayerCache) -> torch.Tensor:
        batch = now.batch
        indexer = LightningIndexer(self.size, cache, now.counters, batch.path, now.selected)
        sparse = SparseAttention(self.size, cache, now.counters, batch.path)
        q_latent = torch.bmm(new.q_nope.transpose(0, 1), self.weights.key_up).transpose(0, 1)
        q = torch.cat((q_latent, new.q_rope), dim=-1)
        if isinstance(batch.shape, DecodeBatch):
            out = sparse.decode(q, indexer.select_in_decode(new.index, batch.shape), batch.shape)
        else:
            parts = [sparse.prefill(q, indexer.select_in_prefill(new.index, span), span) for span in batch.shape.spans]
            out = torch.cat(parts)
        return torch.bmm(out.transpose(0, 1), self.weights.value_up).transpose(0, 1).flatten(1)
