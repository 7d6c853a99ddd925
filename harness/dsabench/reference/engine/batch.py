"""One forward pass as the model sees it: which tokens, where they are stored, which kernels serve them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch

from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.ranks import RankGroups, all_reduce_sum

if TYPE_CHECKING:
    from dsabench.reference.engine.hot_buffer import HotBufferStep

Path = Literal["dense_mha", "flashmla_sparse", "flashmla_kv", "triton"]


@dataclass(frozen=True, slots=True)
class PrefillSpan:
    """The part of a prefill that belongs to one sequence: rows start … stop - 1 of the batch."""

    start: int
    stop: int
    slots: torch.Tensor
    """[L] slots of the sequence, prefix and new tokens."""
    row_slots: torch.Tensor
    """[L] where its rows are: the same, but with HiSparse."""

    @property
    def new_tokens(self) -> int:
        """Tokens computed in this pass."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class PrefillBatch:
    """Several new tokens of each of a few sequences, laid end to end."""

    spans: tuple[PrefillSpan, ...]


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """B rows of one new token each: a row per sequence, or several of a sequence whose next tokens are guessed."""

    slots: torch.Tensor
    """[B, L] slots of each row's sequence, L the longest rounded up to pages; what lies beyond a sequence is not read."""
    lengths: torch.Tensor
    """[B] tokens that each row sees, its own included."""
    longest: int
    page_size: int
    hot: HotBufferStep | None = None
    """HiSparse: the buffers that the rows are in."""


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """T tokens of one forward pass."""

    tokens: torch.Tensor
    """[T] int64."""
    positions: torch.Tensor
    """[T] int64, place in the sequence."""
    slots: torch.Tensor
    """[T] int64, where their indexer keys go."""
    row_slots: torch.Tensor
    """[T] int64, where their rows go in prefill, and without HiSparse in decode: else each layer has its own place."""
    wanted: torch.Tensor
    """Rows whose next token is asked for."""
    path: Path
    shape: PrefillBatch | DecodeBatch


def empty_batch(device: str) -> ForwardBatch:
    """No tokens: what a group of ranks runs while only others have work."""
    none = torch.empty(0, dtype=torch.int64, device=device)
    return ForwardBatch(none, none, none, none, none, "dense_mha", PrefillBatch(()))


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """A batch on its way through the layers, and what they share."""

    batch: ForwardBatch
    cos: torch.Tensor
    """[T, 1, R/2], of the batch's positions."""
    sin: torch.Tensor
    counters: EngineCounters
    ranks: RankGroups
    token_counts: tuple[int, ...] | None = None
    """Tokens of each group of ranks whose MLPs run together (DP attention); None where each runs its own."""
    selected: dict[int, torch.Tensor] = field(default_factory=dict)
    """IndexCache: first row of a sequence's part of the batch → positions [T, K] that the last layer with an indexer
    selected there. Layers without one attend to the same."""

    def run_mlp(self, mlp: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden] by an MLP that is split over the ranks."""
        if self.token_counts is None:
            return all_reduce_sum(mlp(x), self.ranks.heads)
        out = all_reduce_sum(mlp(self.ranks.gather(x, self.token_counts)), self.ranks.everyone)
        start = sum(self.token_counts[: self.ranks.seat.group])
        return out[start : start + len(x)]
