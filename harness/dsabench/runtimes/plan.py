"""Which processes a setting needs: one command per process, and how many GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dsabench.errors import InputError
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import ROUTER, SINGLE, Role, RoleHosts, RouterSpec, Topology
from dsabench.model.value import KnobValue
from dsabench.runtimes.command import public_env, public_words
from dsabench.runtimes.sites import Post, ranks_of

Severity = Literal["error", "overwritten", "advisory"]


@dataclass(frozen=True, slots=True)
class PlanRemark:
    """One setting that a version does not carry out as asked."""

    rule: str
    """Explained in docs/launch.md; FL ids are those of the rule set, where rendering is what notices them."""
    severity: Severity
    knob: str
    """Knob or variable."""
    message: str
    fix: str = ""
    """The nearest setting that works, where there is one."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.knob}: {self.message}" + (f"; {self.fix}" if self.fix else "")


OFF = "off"


def settled_knobs(knobs: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """The knobs that are rendered: with speculation off, none of its own."""
    if knobs.get("speculative_algorithm") != OFF:
        return dict(knobs)
    return {
        name: value
        for name, value in knobs.items()
        if not name.startswith("speculative_") and name != "simulated_accept_length"
    }


def settle(spec: RuntimeSpec) -> RuntimeSpec:
    """The same spec with the knobs that are rendered, those of its roles in their roles."""
    spec = spec.with_roles_apart()
    knobs = settled_knobs(spec.knobs)
    topology = spec.topology
    if topology is not None:
        roles = tuple(
            role.model_copy(update={"knobs": _own(role.knobs, {**spec.knobs, **role.knobs})}) for role in topology.roles
        )
        topology = topology.model_copy(update={"roles": roles})
    return spec.model_copy(update={"knobs": knobs, "topology": topology})


def _own(own: Mapping[str, KnobValue], merged: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    kept = settled_knobs(merged)
    return {name: value for name, value in own.items() if name in kept}


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One command to start on one machine."""

    role: str
    instance: int
    node_rank: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    term_all: bool = False
    """TERM goes to its children as well. SGLang takes a scheduler that goes before its launcher for a crash."""

    def public(self) -> dict[str, object]:
        """The form that automation reads, with secrets left to the shell."""
        return {
            "role": self.role,
            "instance": self.instance,
            "node_rank": self.node_rank,
            "argv": list(public_words(self.argv)),
            "env": public_env(self.env),
        }


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """All commands of a deployment, and what is to be said about its settings."""

    processes: tuple[PlannedProcess, ...]
    remarks: tuple[PlanRemark, ...] = ()
    note: str = ""
    """What to know about the commands, or why there are none."""


def role_specs(spec: RuntimeSpec) -> Iterator[tuple[Role, RuntimeSpec]]:
    """Each role with the spec that its servers have: the role's knobs and variables in place."""
    spec = spec.with_roles_apart()
    for role in (spec.topology or SINGLE).roles:
        changed = {"knobs": settled_knobs({**spec.knobs, **role.knobs}), "env": {**spec.env, **role.env}}
        yield role, RuntimeSpec.model_validate({**dict(spec), **changed})


def instances_of(topology: Topology, sites: Mapping[str, RoleHosts]) -> Iterator[Post]:
    """Every instance of every role, numbered through."""
    index = 0
    for role in topology.roles:
        for instance in range(role.instances):
            yield Post(topology, role, instance, index, sites.get(role.role, RoleHosts()))
            index += 1


def check_sites(topology: Topology, sites: Mapping[str, RoleHosts]) -> None:
    """Hold the places that a config names against the topology.

    Raises:
        InputError: a role that there is not, or a wrong number of machines.

    """
    roles: dict[str, Role] = {role.role: role for role in topology.roles}
    for name, site in sites.items():
        if name not in roles and (name != ROUTER or topology.router is None):
            raise InputError(f"runtime.launch.sites.{name}: the topology has no such role")
        if name == ROUTER:
            continue
        role = roles[name]
        machines = role.instances * role.nodes
        if site.hosts and len(site.hosts) != machines:
            raise InputError(f"runtime.launch.sites.{name}.hosts: {len(site.hosts)} for {machines} machines")
        if site.urls and len(site.urls) != role.instances:
            raise InputError(f"runtime.launch.sites.{name}.urls: {len(site.urls)} for {role.instances} instances")
        for key in ("port", "dist_port", "bootstrap_port"):
            if isinstance(getattr(site, key), str) and role.instances > 1:
                raise InputError(f"runtime.launch.sites.{name}.{key}: {role.instances} instances need a number")


def router_words(posts: Iterable[Post], router: RouterSpec) -> list[str]:
    """What the router is told of its servers, and how it routes: SGLang's flags, which the reference router shares."""
    words = ["--pd-disaggregation"]
    for post in posts:
        words += [f"--{post.role.role}", post.url]
        words += [str(post.bootstrap)] if post.role.role == "prefill" else []
    words += [] if router.policy is None else ["--policy", router.policy]
    words += ["--disable-retries"] if router.retries is False else []
    return words


def machines_of(spec: RuntimeSpec, gpus: Callable[[RuntimeSpec], int]) -> tuple[int, ...]:
    """GPUs of each of its machines, were every one another, in the order of the hosts of its roles. `gpus` tells the runtime's, all in all."""
    has_gpus = gpus(spec) > 0
    return tuple(
        -(-ranks_of(own.knobs) // role.nodes) if has_gpus else 0
        for role, own in role_specs(spec)
        for _ in range(role.instances * role.nodes)
    )


def gpus_of(spec: RuntimeSpec) -> int:
    """Ranks of all its instances."""
    return sum(role.instances * ranks_of(own.knobs) for role, own in role_specs(spec))
