"""The sums over ranks that a split model needs, through torch.distributed (gloo on CPUs, NCCL on GPUs)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import psutil
import torch
from torch import distributed
from torch._C._distributed_c10d import TCPStore

from dsabench.reference.engine.layout import RankPlacement

_TIMEOUT = timedelta(seconds=120)
"""For a rank that lives and does not answer; a dead one closes its connections, which the others see at once."""


@dataclass(frozen=True, slots=True)
class RankGroups:
    """This rank's place, and its connections to those that compute with it; None where there are none."""

    seat: RankPlacement
    heads: distributed.ProcessGroup | None = None
    """The ranks that share its requests."""
    everyone: distributed.ProcessGroup | None = None
    """All ranks of the replica, where they serve several groups of requests; else None."""

    def gather(self, x: torch.Tensor, counts: tuple[int, ...]) -> torch.Tensor:
        """The tokens of all groups, group after group: x [T, hidden] → [Σ counts, hidden].

        A sum of what is zero but for one's own part (sglang's `_dp_gather_via_all_reduce`).
        """
        out = x.new_zeros(sum(counts), x.shape[1])
        if self.seat.leads:
            start = sum(counts[: self.seat.group])
            out[start : start + len(x)] = x
        return all_reduce_sum(out, self.everyone)

    def token_counts(self, own: int) -> tuple[int, ...]:
        """How many tokens each group brings to the next pass."""
        if self.everyone is None:
            return (own,)
        counts = torch.zeros(self.seat.groups, dtype=torch.int64)
        counts[self.seat.group] = own if self.seat.leads else 0
        distributed.all_reduce(counts, group=self.everyone)
        return tuple(counts.tolist())

    def collect(self, value: dict[int, int]) -> list[dict[int, int]]:
        """The value of each rank of the replica; nothing where there is one."""
        group = self.everyone or self.heads
        if group is None:
            return []
        values: list[dict[int, int]] = [{}] * distributed.get_world_size(group)
        distributed.all_gather_object(values, value, group=group)
        return values


ALONE = RankGroups(RankPlacement())


def all_reduce_sum(x: torch.Tensor, group: distributed.ProcessGroup | None) -> torch.Tensor:
    """Add up x [T, hidden] over ranks, in float32, so that only the result is rounded; None is this rank alone."""
    if group is None:
        return x
    total = x.float().contiguous()
    distributed.all_reduce(total, group=group)
    return total.to(x.dtype)


def connect_ranks(seat: RankPlacement, device: str, host: str, agree: Callable[[int | None], int]) -> RankGroups:
    """Connect with the other ranks of the replica. Rank 0, which is on `host`, opens a store; `agree` gives its port to the others."""
    rank, count, width = seat.mlp.index, seat.mlp.of, seat.heads.of
    if count == 1:
        return RankGroups(seat)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _interface_to(host))  # else gloo looks this host's name up
    if rank == 0:
        store = TCPStore(host, 0, count, is_master=True, timeout=_TIMEOUT, wait_for_workers=False)
        agree(store.port)
    else:
        store = TCPStore(host, agree(None), count, timeout=_TIMEOUT)
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"  # counts of tokens stay on the CPU
    distributed.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=_TIMEOUT)
    everyone = distributed.group.WORLD
    if width == count:
        return RankGroups(seat, everyone)
    members = [list(range(start, start + width)) for start in range(0, count, width)]
    made = [distributed.new_group(one, timeout=_TIMEOUT) for one in members]  # every rank makes all of them
    return RankGroups(seat, made[seat.group] if width > 1 else None, everyone)


def _interface_to(host: str) -> str:
    """Name of the network interface by which this machine reaches another, or itself."""
    family, kind, _, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # sends nothing
        own = probe.getsockname()[0]
    of_address = {one.address: name for name, all_of in psutil.net_if_addrs().items() for one in all_of}
    return of_address.get(own, "lo")
