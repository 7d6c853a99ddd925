"""What all layers of one forward pass share."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from dsabench.reference.batch import Batch
from dsabench.reference.counters import Counters


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """A batch on its way through the layers."""

    batch: Batch
    cos: torch.Tensor
    """[T, 1, R/2], of the batch's positions."""
    sin: torch.Tensor
    counters: Counters
    selected: dict[int, torch.Tensor] = field(default_factory=dict)
    """IndexCache: first row of a sequence's part of the batch → positions [T, K] that the last layer with an indexer
    selected there. Layers without one attend to the same."""
