"""How many processes serve, and what each has of the model, under sglang's flags.

`--tp-size T --dp-size D` is D replicas of T ranks each, over which heads and MLPs are split (Megatron-LM, 2019, section 3); the
latent cache and the indexer, which all heads share, are on every rank. With `--enable-dp-attention` there are T ranks in all: D
groups of T / D ranks attend each to their own requests, and all T split the MLPs, through which the tokens of all groups go
together (sglang 0.5.23 dp_attention.py). `--ep-size E` gives each of E sets of ranks whole experts, which T / E ranks split
further.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EqualPart:
    """One of so many equal parts."""

    index: int = 0
    of: int = 1

    def of_range(self, total: int) -> slice:
        """Its share of 0 … total - 1."""
        width = total // self.of
        return slice(self.index * width, (self.index + 1) * width)


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """One rank of a replica and its parts of the model."""

    group: int = 0
    """Its scheduler's number; the ranks of a group take the same steps."""
    heads: EqualPart = EqualPart()
    """Among the ranks of its group."""
    mlp: EqualPart = EqualPart()
    """Among all ranks of the replica."""
    experts: EqualPart = EqualPart()
    inside_expert: EqualPart = EqualPart()

    @property
    def leads(self) -> bool:
        """Whether it tells the server what its group generated."""
        return self.heads.index == 0

    @property
    def groups(self) -> int:
        """Schedulers of the replica."""
        return self.mlp.of // self.heads.of


@dataclass(frozen=True, slots=True)
class ParallelLayout:
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

    def on_node(self, node: int, nodes: int) -> range:
        """The ranks of one of several machines, each of which has as many."""
        here = self.processes // nodes
        return range(node * here, (node + 1) * here)

    def dp_rank(self, number: int) -> int:
        """Replica, or DP attention group, of a process among the ranks of all replicas."""
        return number // (self.tp // self.groups)

    def seat(self, rank: int) -> RankPlacement:
        """What a rank of a replica has."""
        heads, slices = self.tp // self.groups, self.tp // self.ep
        return RankPlacement(
            group=rank // heads,
            heads=EqualPart(rank % heads, heads),
            mlp=EqualPart(rank, self.tp),
            experts=EqualPart(rank // slices, self.ep),
            inside_expert=EqualPart(rank % slices, slices),
        )
