"""Where each process stands: machine, HTTP port, rendezvous port, first GPU. Ports are leased at boot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from dsabench.errors import InputError, TrialFault
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import ROUTER, Role, RoleHosts, Topology
from dsabench.model.value import KnobValue
from dsabench.runtimes.ports import HOST, PortLease, is_free

PORT_STEP = 300
"""Between instances: DP attention takes ports at port + 13 and port + 233 to + 239, or dist port + 1 to + 13."""
_FIRST_PORT, _FIRST_DIST_PORT = 30000, 20000
_BOOTSTRAP_PORT = 8998

ROUTER_PORT = 8000
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
_DERIVED, _HANDSHAKE = 233, 13
"""Where DP attention's ports begin after the HTTP port, and its handshake after either (0.5.16 srt/server_args.py:8227)."""
_CONSECUTIVE = 7
_DIST, _BOOTSTRAP = 100, 50
"""Offsets from an instance's own port; DP attention takes + 13 and + 233 to + 239, or the dist port's + 1 to + 13."""
_ATTEMPTS = 50


@dataclass(frozen=True, slots=True)
class Post:
    """One instance and where it stands."""

    topology: Topology
    role: Role
    instance: int
    index: int
    """Over all roles, for ports."""
    site: RoleHosts

    @property
    def alone(self) -> bool:
        """Whether the deployment is this one process."""
        return self.topology.processes == 1

    def host(self, node: int = 0) -> str:
        """Address of one of its machines; `$ROLE_HOST` where none is named."""
        if self.site.hosts:
            return self.site.hosts[self.instance * self.role.nodes + node]
        number = f"_{self.instance}" if self.role.instances > 1 else ""
        return f"${self.role.role.upper()}{number}_HOST"

    @property
    def port(self) -> int | str | None:
        """None leaves the runtime's default."""
        if self.site.port is not None:
            return _spaced(self.site.port, self.instance)
        return None if len(self.topology.roles) == self.role.instances == 1 else _FIRST_PORT + PORT_STEP * self.index

    @property
    def dist_port(self) -> int | str | None:
        """Where the ranks of several machines meet; None leaves the runtime's default."""
        if self.site.dist_port is not None:
            return _spaced(self.site.dist_port, self.instance)
        return _FIRST_DIST_PORT + PORT_STEP * self.index if self.role.nodes > 1 else None

    @property
    def bootstrap_port(self) -> int | str | None:
        """Where a prefill server meets decode servers; None leaves the runtime's default, 8998."""
        if self.role.role != "prefill":
            return None
        if self.site.bootstrap_port is not None:
            return _spaced(self.site.bootstrap_port, self.instance, 1)
        return _BOOTSTRAP_PORT + self.instance if self.role.instances > 1 else None

    @property
    def http(self) -> int | str:
        """The port that it answers on, the runtime's default where none is told."""
        return self.port or _FIRST_PORT

    @property
    def bootstrap(self) -> int | str:
        """Where it meets decode servers, the runtime's default where none is told."""
        return self.bootstrap_port or _BOOTSTRAP_PORT

    @property
    def url(self) -> str:
        """What the router is told."""
        if self.site.urls:
            return self.site.urls[self.instance]
        return f"http://{self.host()}:{self.http}"

    @property
    def _is_reached_from_here(self) -> bool:
        """Alone, and on loopback: half of a pair is so only where its site says it."""
        local = set(self.site.hosts) <= {"127.0.0.1", "localhost"}
        return self.alone and local and (self.role.role == "server" or bool(self.site.hosts))

    def role_words(self, node: int) -> Iterator[str]:
        """Which part of the deployment one of its machines is: SGLang's flags, which the reference runtime shares."""
        if self.role.role != "server":
            yield from ("--disaggregation-mode", self.role.role)
        if self.bootstrap_port is not None:
            yield from ("--disaggregation-bootstrap-port", str(self.bootstrap_port))
        if self.role.nodes > 1:
            yield from ("--nnodes", str(self.role.nodes), "--node-rank", str(node))
        if self.dist_port is not None:
            yield from ("--dist-init-addr", f"{self.host()}:{self.dist_port}")

    def words(self, node: int) -> Iterator[str]:
        """What the topology adds to the settings of SGLang."""
        yield from self.role_words(node)
        bind = self.site.bind or (None if self._is_reached_from_here else "0.0.0.0")  # noqa: S104 (the others have to)
        if bind is not None:
            yield from ("--host", bind)
        if self.port is not None:
            yield from ("--port", str(self.port))


def _spaced(first: int | str, instance: int, step: int = PORT_STEP) -> int | str:
    return first if isinstance(first, str) else first + step * instance


def ranks_of(knobs: Mapping[str, KnobValue]) -> int:
    """Devices of one instance: tp × pp. Where DP attention or context parallelism does not divide them, `dp_size` copies of the model
    stand side by side.
    """
    ranks = int(knobs.get("tp_size", 1)) * int(knobs.get("pp_size", 1))
    divides = knobs.get("dp_attention") is True or knobs.get("prefill_cp") is True
    return ranks if divides else ranks * int(knobs.get("dp_size", 1))


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
        return -(-ranks_of(self.spec.knobs) // self.post.role.nodes)

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
    taken: set[int] = set()
    for role in topology.roles:
        site = given.get(role.role, RoleHosts())
        hosts = site.hosts or (HOST,) * (role.instances * role.nodes)
        port = site.port
        if not isinstance(port, int):
            lease = await _lease_block(stack, role.instances, taken)
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
            lease = await _lease_block(stack, 1, taken)
            changes["port"] = lease.port
            fds.append(lease.fd)
        sites[ROUTER] = site.model_copy(update=changes)
    return Berth(sites, tuple(fds))


async def _lease_block(stack: AsyncExitStack, instances: int, taken: set[int]) -> PortLease:
    """A port whose followers, one step each, are free as well, and none of which another block of the deployment has, `taken`.
    Its own are added to those.
    """
    for _ in range(_ATTEMPTS):
        async with AsyncExitStack() as attempt:
            lease = await attempt.enter_async_context(PortLease())
            others = range(lease.port, lease.port + PORT_STEP * instances, PORT_STEP)
            consecutive = {base + n for base in (_DIST, _DERIVED) for n in range(_CONSECUTIVE)}
            offsets = {0, _HANDSHAKE, _BOOTSTRAP, _DIST + _HANDSHAKE, *consecutive}
            needed = {port + offset for port in others for offset in offsets}
            needed |= set(range(lease.port + _BOOTSTRAP, lease.port + _BOOTSTRAP + instances))
            if max(needed) < 65536 and not needed & taken and all(is_free(port) for port in sorted(needed)):
                taken |= needed
                stack.push_async_exit(attempt.pop_all())
                return lease
    raise TrialFault("port_in_use", f"no free block of ports on {HOST}", stage="boot", transient=True)
