"""Ports of a deployment whose parts all stand on this machine."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from dsabench.model.topology import Role, RouterSpec, Topology
from dsabench.runtimes import ports, sites
from dsabench.runtimes.sites import find_berth


async def test_blocks_of_several_roles_never_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the second block's first port is the first one's bootstrap port, another is taken, and so for the router's."""
    topology = Topology(roles=(Role(role="prefill"), Role(role="decode")), router=RouterSpec())
    first = 50_000  # above what other leases take
    for module in (ports, sites):
        monkeypatch.setattr(module, "is_free", lambda _: True)
    offered = [first, first + 50, first - 100, first + 2000, first + 233, first + 2100, first + 5000]
    monkeypatch.setattr(ports, "_candidates", lambda: [port for port in offered if port not in tried] or [first + 7000])
    tried: set[int] = set()
    lock = ports.try_lock

    def once(file):
        tried.add(int(file.stem.removeprefix("port-")))
        return lock(file)

    monkeypatch.setattr(ports, "try_lock", once)
    async with AsyncExitStack() as stack:
        berth = await find_berth(stack, topology, {})
        found = [berth.sites[name].port for name in ("prefill", "decode", "router")]
        assert found == [first, first + 2000, first + 5000]
        assert berth.sites["prefill"].bootstrap_port == first + 50
