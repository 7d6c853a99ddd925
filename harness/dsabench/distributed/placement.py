"""Where the processes of a deployment stand on a Ray cluster: a bundle of a placement group for each of its machines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from dsabench.config.specs import RuntimeConfig
from dsabench.model.topology import ROUTER, SINGLE, RoleHosts
from dsabench.model.value import Value
from dsabench.runtimes.ports import HOST

_CLIENT = Path(__file__).with_name("on_node.py")


class Placement(Value):
    """Reserved machines, in the order in which the topology names them."""

    address: str
    """`HOST:PORT` of the cluster's head."""
    namespace: str
    group: str
    """Name of the placement group."""
    hosts: tuple[str, ...]
    gpus: tuple[int, ...]
    """Of each machine."""
    starter: str
    """The host whose process starts them all, with the router beside it."""
    has_gpus: bool
    """Whether that process is a booter, which has the GPUs of the first machine: what stands there is its own child."""

    def launched(self, runtime: RuntimeConfig) -> RuntimeConfig:
        """The same runtime, started there: what says a machine in `runtime.launch` gives way. The router of a booter is for it alone."""
        topology = runtime.topology or SINGLE
        sites, first = dict(runtime.launch.sites), 0
        for role in topology.roles:
            count = role.instances * role.nodes
            given = sites.get(role.role, RoleHosts())
            sites[role.role] = given.model_copy(update={"hosts": self.hosts[first : first + count], "urls": ()})
            first += count
        if topology.router is not None:
            given = RoleHosts() if self.has_gpus else sites.get(ROUTER, RoleHosts())
            sites[ROUTER] = given.model_copy(update={"hosts": (HOST,), "urls": (), "bind": given.bind or HOST})
        return _launched(runtime, sites, (sys.executable, "-P", str(_CLIENT), self.model_dump_json(), "{host}"))


def on_one_node(runtime: RuntimeConfig) -> RuntimeConfig:
    """The same runtime, started on the node that Ray chose: what says a machine in `runtime.launch` gives way there too."""
    sites = {
        name: site.model_copy(update={"hosts": (), "urls": (), "bind": None})
        for name, site in runtime.launch.sites.items()
    }
    return _launched(runtime, sites)


def _launched(runtime: RuntimeConfig, sites: Mapping[str, RoleHosts], client: tuple[str, ...] = ()) -> RuntimeConfig:
    own = runtime.launch.command_prefix
    prefix = client if _names_machine(own) else (*client, *own)
    launch = runtime.launch.model_copy(update={"sites": sites, "command_prefix": prefix})
    return runtime.model_copy(update={"launch": launch})


def note_on_prefix(runtime: RuntimeConfig) -> str | None:
    """What is to be said of a prefix that gives way; None where there is none."""
    if not _names_machine(runtime.launch.command_prefix):
        return None
    return "runtime.launch.command_prefix is left out: Ray starts the processes of each node"


def _names_machine(prefix: tuple[str, ...]) -> bool:
    """Whether a prefix says where a process runs (`ssh {host}`), and not only how (`numactl --cpunodebind=0`)."""
    return any("{host}" in word for word in prefix)
