"""The attention of one layer, from projected queries to outputs in latent or value space, along each kernel path."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from dsabench.reference.engine import operators
from dsabench.reference.engine.batch import Decode, Path, Span
from dsabench.reference.engine.counters import Counters
from dsabench.reference.engine.latent_cache import LayerCache
from dsabench.reference.engine.sizes import ModelSize
from dsakernels import attention, indexer

_INDEXER_QUERIES = 128
"""Queries whose logits over the whole prefix are held at once."""


@dataclass(frozen=True, slots=True)
class IndexQueries:
    """What the indexer asks, for T tokens."""

    q: torch.Tensor
    """[T, I, E]."""
    weights: torch.Tensor
    """[T, I] float32, scales included."""


@dataclass(frozen=True, slots=True)
class SparsePaths:
    """`flashmla_sparse`, `flashmla_kv` and `triton` over one layer's cache."""

    size: ModelSize
    cache: LayerCache
    counters: Counters
    path: Path
    selected: dict[int, torch.Tensor]
    """See `ForwardPass.selected`."""

    def prefill(self, q: torch.Tensor, index: IndexQueries | None, span: Span) -> torch.Tensor:
        """Attend from the new tokens of one sequence, among q [T, H, D] and index of the batch → [new, H, C].

        Queries are absorbed: q_nope · W_uk, then the rotated part. `index` is None where the layer reuses a selection.
        """
        self._count(f"prefill.{self.path}", span.new_tokens)
        if index is None:
            positions = self._reuse("prefill", span.start, len(span.slots))
        else:
            positions = self.selected[span.start] = self._select_of_sequence(index, span)
        q = q[span.start : span.stop]
        if self._unpacks_all:
            return self._attend(q, positions, self.cache.read(span.row_slots, q.dtype))
        slots = torch.where(positions < 0, -1, span.row_slots[positions])  # -1 reads the last slot, and is replaced
        return self._attend(q, slots, self.cache.rows)

    def decode(self, q: torch.Tensor, index: IndexQueries | None, step: Decode) -> torch.Tensor:
        """Attend from one new token per row of the batch, q [B, H, D] → [B, H, C]."""
        self._count(f"decode.{self.path}", len(step.lengths))
        if index is None:
            positions = self._reuse("decode", 0, step.longest)
        else:
            positions = self.selected[0] = self._select_of_batch(index, step)
        if step.hot is not None:
            return step.hot.attend(self.cache.layer, q, positions, partial(self._attend, rows=self.cache.rows))
        if self._unpacks_all:
            offsets = torch.arange(len(step.slots), device=q.device).unsqueeze(1) * step.slots.shape[1]
            rows = self.cache.read(step.slots.reshape(-1), q.dtype)
            return self._attend(q, torch.where(positions < 0, -1, positions + offsets), rows)
        slots = torch.where(positions < 0, -1, step.slots.gather(1, positions.clamp(min=0)))
        return self._attend(q, slots, self.cache.rows)

    @property
    def _unpacks_all(self) -> bool:
        """Whether a sequence's packed rows are all made plain before some of them are gathered."""
        return self.path == "flashmla_sparse" and self.cache.packed is not None

    def _attend(self, q: torch.Tensor, indices: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return operators.attend(self.path, q, rows, indices, self.size)

    def _reuse(self, stage: str, first_row: int, longest: int) -> torch.Tensor:
        """What the layer before attended to; that saves work where there was something to select."""
        positions = self.selected[first_row]
        if longest > self.size.index_topk:
            self.counters.index_layer_tokens[f"{stage}.reused"] += len(positions)
        return positions

    def _select_of_sequence(self, index: IndexQueries, span: Span) -> torch.Tensor:
        """Positions [T, K] in the sequence; -1 where there are fewer than K."""
        length, new, k = len(span.slots), span.new_tokens, self.size.index_topk
        lengths = torch.arange(length - new, length, device=span.slots.device) + 1
        if length <= k:
            return indexer.everything(lengths, k)
        self._count_indexed("prefill", new)
        keys = self.cache.keys.index_select(0, span.slots).to(index.q.dtype)
        q, weights = index.q[span.start : span.stop], index.weights[span.start : span.stop]
        chosen = []
        for start in range(0, new, _INDEXER_QUERIES):
            stop = min(start + _INDEXER_QUERIES, new)
            visible = keys[: length - new + stop].unsqueeze(0)
            logits = operators.logits(self.path, q[start:stop], weights[start:stop], visible)
            chosen.append(indexer.select(logits, lengths[start:stop], k))
        return torch.cat(chosen)

    def _select_of_batch(self, index: IndexQueries, step: Decode) -> torch.Tensor:
        """Positions [B, K] in each sequence; -1 where there are fewer than K."""
        k = self.size.index_topk
        if step.longest <= k:
            return indexer.everything(step.lengths, k)
        self._count_indexed("decode", len(step.lengths))
        pages = step.slots[:, :: step.page_size].div(step.page_size, rounding_mode="floor")
        paged_keys = self.cache.keys.view(-1, step.page_size * self.size.index_dim)
        keys = paged_keys.index_select(0, pages.reshape(-1)).view(*step.slots.shape, self.size.index_dim)
        logits = operators.logits(self.path, index.q, index.weights, keys.to(index.q.dtype))
        return indexer.select(logits, step.lengths, k)

    def _count(self, path: str, tokens: int) -> None:
        if self.cache.layer == 0:
            self.counters.tokens[path] += tokens

    def _count_indexed(self, stage: str, tokens: int) -> None:
        if self.cache.layer == 0:
            self.counters.indexed_tokens[stage] += tokens
        if self.cache.layer < self.size.layers:  # else it is the draft head's
            self.counters.index_layer_tokens[f"{stage}.computed"] += tokens


def dense_mha(q: torch.Tensor, rows: torch.Tensor, up: torch.Tensor, size: ModelSize) -> torch.Tensor:
    """Attend densely from the last T tokens of one sequence, with keys and values of every head.

    q [T, H, nope + R], rows [L, D] of prefix and new tokens, up [H · (nope + value), C] → [T, H, value].
    """
    length = len(rows)
    expanded = torch.nn.functional.linear(rows[:, : size.latent], up).view(length, size.heads, size.nope + size.value)
    nope, value = torch.split(expanded, [size.nope, size.value], dim=-1)
    rope = rows[:, size.latent :].unsqueeze(1).expand(-1, size.heads, -1)
    keys = torch.cat((nope, rope), dim=-1).transpose(0, 1)
    out = attention.mha(q.transpose(0, 1), keys, value.transpose(0, 1), scale=size.attention_scale)
    return out.transpose(0, 1)
