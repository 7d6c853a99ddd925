"""What all layers of one forward pass share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from dsabench.reference.batch import Batch
from dsabench.reference.counters import Counters
from dsabench.reference.ranks import Ranks


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """A batch on its way through the layers."""

    batch: Batch
    cos: torch.Tensor
    """[T, 1, R/2], of the batch's positions."""
    sin: torch.Tensor
    counters: Counters
    ranks: Ranks
    token_counts: tuple[int, ...] | None = None
    """Tokens of each group of ranks whose MLPs run together (DP attention); None where each runs its own."""
    selected: dict[int, torch.Tensor] = field(default_factory=dict)
    """IndexCache: first row of a sequence's part of the batch → positions [T, K] that the last layer with an indexer
    selected there. Layers without one attend to the same."""

    def through(self, mlp: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden] by an MLP that is split over the ranks."""
        if self.token_counts is None:
            return self.ranks.sum_in_group(mlp(x))
        out = self.ranks.sum_of_all(mlp(self.ranks.gather(x, self.token_counts)))
        start = sum(self.token_counts[: self.ranks.seat.group])
        return out[start : start + len(x)]
