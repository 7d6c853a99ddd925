"""Attention of one layer's queries to the tokens that its indexer selected, along each kernel path; dense MHA for short prompts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from dsabench.reference.engine.batch import DecodeBatch, Path, PrefillSpan
from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.kv_cache import LayerCache
from dsabench.reference.engine.sizes import ModelSize
from dsakernels import attention
from dsakernels.kv_layout import PackedLayout
from dsakernels.triton_kernels.blocking import parts_for


@dataclass(frozen=True, slots=True)
class SparseAttention:
    """`flashmla_sparse`, `flashmla_kv` and `triton` over one layer's cache."""

    size: ModelSize
    cache: LayerCache
    counters: EngineCounters
    path: Path

    def prefill(self, q: torch.Tensor, positions: torch.Tensor, span: PrefillSpan) -> torch.Tensor:
        """Attend from the new tokens of one sequence, among q [T, H, D] of the batch, to `positions` [new, K] → [new, H, C].

        Queries are absorbed: q_nope · W_uk, then the rotated part.
        """
        self._count(f"prefill.{self.path}", span.new_tokens)
        q = q[span.start : span.stop]
        if self._unpacks_all:
            return self._attend(q, positions, self.cache.read(span.row_slots, q.dtype))
        slots = torch.where(positions < 0, -1, span.row_slots[positions])  # -1 reads the last slot, and is replaced
        return self._attend(q, slots, self.cache.rows)

    def decode(self, q: torch.Tensor, positions: torch.Tensor, step: DecodeBatch) -> torch.Tensor:
        """Attend from one new token per row of the batch, q [B, H, D], to `positions` [B, K] → [B, H, C]."""
        self._count(f"decode.{self.path}", len(step.lengths))
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
        """Sparse attention: q [T, H, D], rows [N, D] or packed [N, row_bytes], indices [T, K] into them → [T, H, C]."""
        size, scale = self.size, self.size.attention_scale
        if self.path == "flashmla_kv":
            layout = PackedLayout(size.latent, size.rope)
            return attention.flashmla_kv(q, rows, indices, layout=layout, scale=scale)
        if self.path != "triton":
            return attention.flashmla_sparse(q, rows, indices, latent=size.latent, scale=scale)
        from dsakernels.triton_kernels import sparse_attention as kernels  # noqa: PLC0415 (Triton may not be installed)

        if rows.dtype not in (torch.uint8, q.dtype):  # a model in float32: a product is of one type
            rows = rows.to(q.dtype)
        processors = torch.cuda.get_device_properties().multi_processor_count if q.is_cuda else 1
        parts = parts_for(q.shape[0], q.shape[1], indices.shape[1], processors)
        return kernels.attend(q, rows, indices.to(torch.int32), latent=size.latent, scale=scale, parts=parts)

    def _count(self, path: str, tokens: int) -> None:
        if self.cache.layer == 0:
            self.counters.tokens[path] += tokens


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
