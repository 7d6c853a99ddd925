"""What one of several processes has of a model.

Heads and MLPs are split over the ranks of a replica (Megatron-LM, 2019, section 3); the latent cache and the indexer,
which all heads share, are on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One of so many equal parts."""

    index: int = 0
    of: int = 1

    def of_range(self, total: int) -> slice:
        """Its share of 0 … total - 1."""
        width = total // self.of
        return slice(self.index * width, (self.index + 1) * width)


@dataclass(frozen=True, slots=True)
class Seat:
    """One rank of a replica and its parts of the model."""

    group: int = 0
    """Its scheduler's number; the ranks of a group take the same steps."""
    heads: Part = Part()
    """Among the ranks of its group."""
    mlp: Part = Part()
    """Among all ranks of the replica."""
    experts: Part = Part()
    inside_expert: Part = Part()

    @property
    def leads(self) -> bool:
        """Whether it tells the server what its group generated."""
        return self.heads.index == 0

    @property
    def groups(self) -> int:
        """Schedulers of the replica."""
        return self.mlp.of // self.heads.of
