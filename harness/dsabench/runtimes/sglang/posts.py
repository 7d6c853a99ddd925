"""One instance of a role and where it stands: its hosts, its ports, and the words that say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dsabench.model.topology import Role, RoleHosts, Topology

PORT_STEP = 300
"""Between instances: DP attention takes ports at port + 13 and port + 233 to + 239, or dist port + 1 to + 13."""
_FIRST_PORT, _FIRST_DIST_PORT = 30000, 20000
_BOOTSTRAP_PORT = 8998


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

    def words(self, node: int) -> Iterator[str]:
        """What the topology adds to the settings."""
        if self.role.role != "server":
            yield from ("--disaggregation-mode", self.role.role)
        if self.bootstrap_port is not None:
            yield from ("--disaggregation-bootstrap-port", str(self.bootstrap_port))
        if self.role.nodes > 1:
            yield from ("--nnodes", str(self.role.nodes), "--node-rank", str(node))
        if self.dist_port is not None:
            yield from ("--dist-init-addr", f"{self.host()}:{self.dist_port}")
        bind = self.site.bind or (None if self._is_reached_from_here else "0.0.0.0")  # noqa: S104 (the others have to)
        if bind is not None:
            yield from ("--host", bind)
        if self.port is not None:
            yield from ("--port", str(self.port))


def _spaced(first: int | str, instance: int, step: int = PORT_STEP) -> int | str:
    return first if isinstance(first, str) else first + step * instance
