"""Where the processes of a deployment stand when dsabench starts them: hosts, and ports that are free."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from dsabench.errors import TrialFault
from dsabench.model.topology import ROUTER, RoleHosts, Topology
from dsabench.runtimes.ports import HOST, PortLease, is_free
from dsabench.runtimes.sglang.posts import PORT_STEP

_DIST, _BOOTSTRAP = 100, 50
"""Offsets from an instance's own port; DP attention takes + 13 and + 233 to + 239, or the dist port's + 1 to + 13."""
_ATTEMPTS = 50


@dataclass(frozen=True, slots=True)
class Berth:
    """Sites with every host and port filled in, and the descriptors that keep the ports ours."""

    sites: Mapping[str, RoleHosts]
    fds: tuple[int, ...]

    def url(self, role: str, instance: int, nodes: int = 1) -> str:
        """Address of an instance's first node."""
        site = self.sites[role]
        assert isinstance(site.port, int)
        return f"http://{site.hosts[instance * nodes]}:{site.port + PORT_STEP * instance}"


async def find_berth(stack: AsyncExitStack, topology: Topology, given: Mapping[str, RoleHosts]) -> Berth:
    """Leased for as long as the stack is open. Hosts that are not given are this machine; given ports stay.

    Raises:
        TrialFault: kind port_in_use, where no block of ports is free.

    """
    sites: dict[str, RoleHosts] = {}
    fds: list[int] = []
    for role in topology.roles:
        site = given.get(role.role, RoleHosts())
        hosts = site.hosts or (HOST,) * (role.instances * role.nodes)
        port = site.port
        if not isinstance(port, int):
            lease = await _lease_block(stack, role.instances)
            port = lease.port
            fds.append(lease.fd)
        changes: dict[str, object] = {"hosts": hosts, "port": port}
        if set(hosts) == {HOST} and site.bind is None:
            changes["bind"] = HOST
        if role.nodes > 1 and not isinstance(site.dist_port, int):
            changes["dist_port"] = port + _DIST
        if role.role == "prefill" and not isinstance(site.bootstrap_port, int):
            changes["bootstrap_port"] = port + _BOOTSTRAP
        sites[role.role] = site.model_copy(update=changes)
    if topology.router is not None:
        site = given.get(ROUTER, RoleHosts())
        changes = {"hosts": site.hosts or (HOST,), "bind": site.bind or (None if site.hosts else HOST)}
        if not isinstance(site.port, int):
            lease = await stack.enter_async_context(PortLease())
            changes["port"] = lease.port
            fds.append(lease.fd)
        sites[ROUTER] = site.model_copy(update=changes)
    return Berth(sites, tuple(fds))


async def _lease_block(stack: AsyncExitStack, instances: int) -> PortLease:
    """A port whose followers, one step each, are free as well."""
    for _ in range(_ATTEMPTS):
        async with AsyncExitStack() as attempt:
            lease = await attempt.enter_async_context(PortLease())
            others = range(lease.port, lease.port + PORT_STEP * instances, PORT_STEP)
            needed = [port + offset for port in others for offset in (0, 13, _BOOTSTRAP, _DIST, 233)]
            if max(needed) < 65536 and all(is_free(port) for port in needed):
                stack.push_async_exit(attempt.pop_all())
                return lease
    raise TrialFault("port_in_use", f"no free block of ports on {HOST}", stage="boot", transient=True)
