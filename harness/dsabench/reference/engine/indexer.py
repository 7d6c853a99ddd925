"""The lightning indexer: logits of every cached token, the K that each query selects, and IndexCache's reuse of a selection."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from dsabench.reference.engine.batch import DecodeBatch, Path, PrefillSpan
from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.kv_cache import LayerCache
from dsabench.reference.engine.sizes import ModelSize
from dsakernels import indexer as kernels

_QUERIES = 128
"""Whose logits over the whole prefix are held at once."""
_LEAST_HEADS = 16
"""Rows of the smallest matrix product that a Triton kernel makes."""


@dataclass(frozen=True, slots=True)
class IndexerQueries:
    """What the indexer asks, for T tokens."""

    q: torch.Tensor
    """[T, I, E]."""
    weights: torch.Tensor
    """[T, I] float32, scales included."""


@dataclass(frozen=True, slots=True)
class LightningIndexer:
    """Selects what the new tokens of one layer attend to, along a kernel path: `triton`, or plain PyTorch."""

    size: ModelSize
    cache: LayerCache
    counters: EngineCounters
    path: Path
    selected: dict[int, torch.Tensor]
    """See `ForwardPass.selected`."""

    def select_in_prefill(self, asked: IndexerQueries | None, span: PrefillSpan) -> torch.Tensor:
        """Positions [T, K] in the sequence, of its new tokens; -1 where there are fewer than K.

        `asked` is of the whole batch, None where the layer attends to what the one before it selected.
        """
        if asked is None:
            return self._reuse("prefill", span.start, len(span.slots))
        self.selected[span.start] = self._select_of_sequence(asked, span)
        return self.selected[span.start]

    def select_in_decode(self, asked: IndexerQueries | None, step: DecodeBatch) -> torch.Tensor:
        """Positions [B, K] in each sequence; -1 where there are fewer than K. `asked` as above."""
        if asked is None:
            return self._reuse("decode", 0, step.longest)
        self.selected[0] = self._select_of_batch(asked, step)
        return self.selected[0]

    def _reuse(self, stage: str, first_row: int, longest: int) -> torch.Tensor:
        """What the layer before attended to; that saves work where there was something to select."""
        positions = self.selected[first_row]
        if longest > self.size.index_topk:
            self.counters.index_layer_tokens[f"{stage}.reused"] += len(positions)
        return positions

    def _select_of_sequence(self, index: IndexerQueries, span: PrefillSpan) -> torch.Tensor:
        """Positions [T, K] in the sequence; -1 where there are fewer than K."""
        length, new, k = len(span.slots), span.new_tokens, self.size.index_topk
        lengths = torch.arange(length - new, length, device=span.slots.device) + 1
        if length <= k:
            return kernels.everything(lengths, k)
        self._count_indexed("prefill", new)
        keys = self.cache.keys.index_select(0, span.slots).to(index.q.dtype)
        q, weights = index.q[span.start : span.stop], index.weights[span.start : span.stop]
        chosen = []
        for start in range(0, new, _QUERIES):
            stop = min(start + _QUERIES, new)
            visible = keys[: length - new + stop].unsqueeze(0)
            logits = self._logits(q[start:stop], weights[start:stop], visible)
            chosen.append(kernels.select(logits, lengths[start:stop], k))
        return torch.cat(chosen)

    def _select_of_batch(self, index: IndexerQueries, step: DecodeBatch) -> torch.Tensor:
        """Positions [B, K] in each sequence; -1 where there are fewer than K."""
        k = self.size.index_topk
        if step.longest <= k:
            return kernels.everything(step.lengths, k)
        self._count_indexed("decode", len(step.lengths))
        pages = step.slots[:, :: step.page_size].div(step.page_size, rounding_mode="floor")
        paged_keys = self.cache.keys.view(-1, step.page_size * self.size.index_dim)
        keys = paged_keys.index_select(0, pages.reshape(-1)).view(*step.slots.shape, self.size.index_dim)
        logits = self._logits(index.q, index.weights, keys.to(index.q.dtype))
        return kernels.select(logits, step.lengths, k)

    def _count_indexed(self, stage: str, tokens: int) -> None:
        if self.cache.layer == 0:
            self.counters.indexed_tokens[stage] += tokens
        if self.cache.layer < self.size.layers:  # else it is the draft head's
            self.counters.index_layer_tokens[f"{stage}.computed"] += tokens

    def _logits(self, q: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Of B sequences with T queries in all: q [T, I, E], weights [T, I], keys [B, L, E] → [T, L] float32.

        Each sequence has the same number of queries, 1 or its last; what lies behind a query's own token is not defined.
        """
        batch, length, width = keys.shape
        if self.path != "triton":
            return kernels.batched_logits(q, weights, keys) if len(q) == batch else kernels.logits(q, weights, keys[0])
        from dsakernels.triton_kernels import indexer as triton_kernels  # noqa: PLC0415 (Triton may not be installed)

        missing = max(0, _LEAST_HEADS - q.shape[1])  # heads of weight 0 add nothing
        q, weights = functional.pad(q, (0, 0, 0, missing)), functional.pad(weights, (0, missing))
        slots = torch.arange(batch * length, dtype=torch.int32, device=q.device)
        scale = torch.ones(batch * length, device=q.device)
        return triton_kernels.logits(q, keys.reshape(-1, width), scale, weights, slots, batch=batch)
