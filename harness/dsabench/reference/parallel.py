"""How many processes serve, and what each has of the model, under sglang's flags.

`--tp-size T --dp-size D` is D replicas of T ranks each. Inside a replica heads and MLPs are split over the T ranks
(Megatron-LM, 2019, section 3); the latent cache and the indexer, which all heads share, are on every rank. With
`--enable-dp-attention` there are T ranks in all: D groups of T / D ranks attend each to their own requests, and all T
split the MLPs, through which the tokens of all groups go together (sglang 0.5.23 dp_attention.py). `--ep-size E` gives
each of E sets of ranks whole experts, which T / E ranks split further.
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
class Parallel:
    """Processes that serve together."""

    tp: int = 1
    dp: int = 1
    ep: int = 1
    dp_attention: bool = False

    @property
    def replicas(self) -> int:
        """Models that share nothing."""
        return 1 if self.dp_attention else self.dp

    @property
    def groups(self) -> int:
        """Schedulers of a replica."""
        return self.dp if self.dp_attention else 1

    @property
    def processes(self) -> int:
        """Ranks of all replicas."""
        return self.replicas * self.tp

    def seat(self, rank: int) -> Seat:
        """What a rank of a replica has."""
        heads, slices = self.tp // self.groups, self.tp // self.ep
        return Seat(
            rank=rank,
            group=rank // heads,
            heads=Part(rank % heads, heads),
            mlp=Part(rank, self.tp),
            experts=Part(rank // slices, self.ep),
            inside_expert=Part(rank % slices, slices),
        )


@dataclass(frozen=True, slots=True)
class Seat:
    """One rank of a replica and its parts of the model."""

    rank: int = 0
    group: int = 0
    """Its scheduler's number; the ranks of a group take the same steps."""
    heads: Part = Part()
    mlp: Part = Part()
    experts: Part = Part()
    inside_expert: Part = Part()

    @property
    def leads(self) -> bool:
        """Whether it tells the server what its group generated."""
        return self.heads.index == 0


ONLY = Seat()
"""The one rank of a model that is not split."""
