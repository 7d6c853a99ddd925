"""Instances that share a machine: their GPUs one after the other, their ports apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import ROUTER, RoleHosts
from dsabench.runtimes.sglang.posts import Post

ROUTER_PORT = 8000
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
_DERIVED, _HANDSHAKE = 233, 13
"""Where DP attention's ports begin after the HTTP port, and its handshake after either (0.5.16 srt/server_args.py:8227)."""
_CONSECUTIVE = 7


@dataclass(frozen=True, slots=True)
class Tenant:
    """One instance with the settings of its role."""

    post: Post
    spec: RuntimeSpec
    env: Mapping[str, str]
    """What its processes see: which devices are visible hangs on it."""

    @property
    def gpus(self) -> int:
        """Devices that it takes on each of its machines."""
        knobs = self.spec.knobs
        ranks = int(knobs.get("tp_size", 1)) * int(knobs.get("pp_size", 1))
        if knobs.get("dp_attention") is not True and knobs.get("prefill_cp") is not True:
            ranks *= int(knobs.get("dp_size", 1))
        return -(-ranks // self.post.role.nodes)

    @property
    def machines(self) -> tuple[str, ...]:
        """Names under which its machines are known; a placeholder may be another machine for each role."""
        start = self.post.instance * self.post.role.nodes
        hosts = self.post.site.hosts[start : start + self.post.role.nodes]
        return tuple(f"{self.post.role.role} {host}" if is_placeholder(host) else host for host in hosts)

    @property
    def name(self) -> str:
        """`prefill`, or `prefill 1` where there are several."""
        return f"{self.post.role.role} {self.post.instance}" if self.post.role.instances > 1 else self.post.role.role

    def devices(self) -> Iterator[tuple[str, tuple[str | None, ...]]]:
        """The sets of devices that it counts from 0 in: a machine, and what is visible of it."""
        visible = tuple(self.env.get(name) for name in _VISIBLE)
        for machine in self.machines:
            yield machine, visible

    def ports(self) -> Iterator[tuple[int, str]]:
        """What it binds on its first machine, with the word for it. Placeholders are left out."""
        http, dist = self.post.http, self.post.dist_port
        if isinstance(http, int):
            yield http, "port"
        if isinstance(dist, int):
            yield dist, "dist_port"
        base = dist if dist is not None else (http + _DERIVED if isinstance(http, int) else None)
        if self.spec.knobs.get("dp_attention") is True and isinstance(base, int):
            shake = base if dist is not None else base - _DERIVED
            yield from ((port, "port of DP attention") for port in range(base + 1, base + _CONSECUTIVE))
            yield shake + _HANDSHAKE, "port of DP attention"
        bootstrap = self.post.bootstrap
        if self.post.role.role == "prefill" and isinstance(bootstrap, int):
            yield bootstrap, "bootstrap_port"


def is_placeholder(host: str) -> bool:
    """Whether a shell or a reader puts the address there: `$HOST`, `<HEAD_NODE_IP>`."""
    return "$" in host or "<" in host


def first_gpus(tenants: Sequence[Tenant]) -> tuple[int, ...]:
    """The first device of each instance: after those of earlier instances on the same machine, of any role.

    All nodes of an instance are told the same, so the fullest of them counts.
    """
    taken: Counter[tuple[str, tuple[str | None, ...]]] = Counter()
    firsts = []
    for tenant in tenants:
        firsts.append(max((taken[devices] for devices in tenant.devices()), default=0))
        for devices in tenant.devices():
            taken[devices] = firsts[-1] + tenant.gpus
    return tuple(firsts)


def check_ports(tenants: Sequence[Tenant], router: RoleHosts | None) -> None:
    """Hold the ports of instances on one machine against each other.

    Raises:
        InputError: two of them are the same.

    """
    bound: dict[tuple[str, int], str] = {}
    for host, role, name, ports in _bound(tenants, router):
        for port, word in ports:
            before = bound.setdefault((host, port), f"{name}'s {word}")
            if before != f"{name}'s {word}":
                raise InputError(
                    f"runtime.launch.sites.{role}: {word} {port} on {host} is {before} already; leave both out "
                    "(instances then stand 300 ports apart), or give other ones"
                )


def _bound(
    tenants: Sequence[Tenant], router: RoleHosts | None
) -> Iterator[tuple[str, str, str, Iterator[tuple[int, str]]]]:
    """Host, role, name and ports of everything that stands on a machine with a name."""
    for tenant in tenants:
        host = next(iter(tenant.machines), None)
        if host is not None and not is_placeholder(host):
            yield host, tenant.post.role.role, tenant.name, tenant.ports()
    port = ROUTER_PORT if router is None or router.port is None else router.port
    if router is not None and router.hosts and not is_placeholder(router.hosts[0]) and isinstance(port, int):
        yield router.hosts[0], ROUTER, ROUTER, iter([(port, "port")])
