"""The processes of a deployment: roles × instances × nodes. Parallel sizes are knobs, because sweeps search them."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from dsabench.model.value import FrozenMap, KnobValue, Value

RoleName = Literal["server", "prefill", "decode"]
ROUTER = "router"

RouterPolicy = Literal["cache_aware", "random", "round_robin", "power_of_two", "manual"]


class Role(Value):
    """Equal servers of one kind. An instance spans `nodes` machines; the first one answers HTTP."""

    role: RoleName = "server"
    """`server` does both phases; `prefill` and `decode` are the two halves of disaggregation."""
    instances: PositiveInt = 1
    nodes: PositiveInt = 1
    """Number of machines per instance."""
    knobs: FrozenMap[KnobValue] = Field(default_factory=dict)
    """Settings of this role only. They override those of the runtime."""
    env: FrozenMap[str] = Field(default_factory=dict)
    """Variables of this role only. They override those of the runtime."""


class RouterSpec(Value):
    """The router in front of prefill and decode servers, which pairs them."""

    policy: RouterPolicy | None = None
    """None takes the router's default."""
    retries: bool | None = None
    """False shows failures to the load generator instead of retrying them."""


class Topology(Value):
    """One `server` role, or `prefill` and `decode`. Either may be missing if it is started elsewhere."""

    roles: tuple[Role, ...] = Field((Role(),), min_length=1)
    router: RouterSpec | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Topology:
        names = Counter(role.role for role in self.roles)
        if max(names.values()) > 1:
            raise ValueError("a role stands twice; raise its instances, or give it other knobs in a config of its own")
        if "server" in names and len(names) > 1:
            raise ValueError("a server does both phases; prefill and decode cannot stand beside it")
        if self.router is not None and names.keys() != {"prefill", "decode"}:
            raise ValueError("a router needs a prefill and a decode role behind it")
        return self

    @property
    def processes(self) -> int:
        """Number of commands to start, including the router."""
        return sum(role.instances * role.nodes for role in self.roles) + (self.router is not None)


SINGLE = Topology()
"""One server on one machine; the meaning of a spec without a topology."""


Port = Annotated[int, Field(ge=1, le=65535)]


class RoleHosts(Value):
    """Machines of the instances of a role. They do not change behaviour, so they are not part of a trial.

    Texts may be placeholders of a shell (`$MASTER_ADDR`) or of a document (`<HEAD_NODE_IP>`).
    """

    hosts: tuple[str, ...] = ()
    """Addresses of the machines: those of the first instance by node rank, then those of the next one."""
    bind: str | None = None
    """Address to listen on; null keeps the runtime's default (loopback) on one machine."""
    port: Port | str | None = None
    """HTTP port of the first instance."""
    dist_port: Port | str | None = None
    """Port on the first node where the ranks of an instance find each other."""
    bootstrap_port: Port | str | None = None
    """Port where a prefill server meets decode servers; the runtime's default is 8998."""
    urls: tuple[str, ...] = ()
    """URLs for the router, one per instance, if they are not `http://HOST:PORT`."""
