"""A spec with a topology → one command and environment per process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import ROUTER, SINGLE, Role, RoleHosts, RouterSpec, Topology
from dsabench.runtimes.launch import Launch
from dsabench.runtimes.sglang.accepts import Accepted
from dsabench.runtimes.sglang.command import enclose, public_env, public_words, server_head
from dsabench.runtimes.sglang.hardware import accelerator
from dsabench.runtimes.sglang.machines import ROUTER_PORT, Tenant, check_ports, first_gpus
from dsabench.runtimes.sglang.posts import Post
from dsabench.runtimes.sglang.remarks import Remark
from dsabench.runtimes.sglang.render import Rendered, render
from dsabench.runtimes.sglang.settle import settled_knobs

_ROUTER_MODULE = "sglang_router.launch_router"


@dataclass(frozen=True, slots=True)
class Process:
    """One command to start on one machine."""

    role: str
    instance: int
    node_rank: int
    argv: tuple[str, ...]
    env: Mapping[str, str]

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
class Plan:
    """All commands of a deployment, and what is to be said about its settings."""

    processes: tuple[Process, ...]
    remarks: tuple[Remark, ...]


def role_specs(spec: RuntimeSpec) -> Iterator[tuple[Role, RuntimeSpec]]:
    """Each role with the spec that its servers have: the role's knobs and variables in place."""
    for role in (spec.topology or SINGLE).roles:
        changed = {"knobs": settled_knobs({**spec.knobs, **role.knobs}), "env": {**spec.env, **role.env}}
        yield role, RuntimeSpec.model_validate({**dict(spec), **changed})


def plan(spec: RuntimeSpec, accepted: Accepted, launch: Launch) -> Plan:
    """The commands of a spec on that version.

    Raises:
        InputError: places that do not fit the topology.

    """
    topology = spec.topology or SINGLE
    _check_sites(topology, launch.sites)
    tenants = [
        Tenant(post, own, {**launch.env, **own.env})
        for role, own in role_specs(spec)
        for post in _posts(topology, launch.sites)
        if post.role.role == role.role
    ]
    check_ports(tenants, launch.sites.get(ROUTER, RoleHosts()) if topology.router is not None else None)
    rendered = {role.role: render(own.knobs, own.env, accepted) for role, own in role_specs(spec)}
    processes: list[Process] = []
    for tenant, first_gpu in zip(tenants, first_gpus(tenants), strict=True):
        processes += _nodes(tenant, first_gpu, rendered[tenant.post.role.role], launch)
    if topology.router is not None:
        processes.append(_router(topology, topology.router, launch))
    remarks = dict.fromkeys(remark for said in rendered.values() for remark in said.remarks)
    return Plan(tuple(processes), tuple(remarks))


def _posts(topology: Topology, sites: Mapping[str, RoleHosts]) -> Iterator[Post]:
    """Every instance of every role, numbered through."""
    index = 0
    for role in topology.roles:
        for instance in range(role.instances):
            yield Post(topology, role, instance, index, sites.get(role.role, RoleHosts()))
            index += 1


def _check_sites(topology: Topology, sites: Mapping[str, RoleHosts]) -> None:
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


def _nodes(tenant: Tenant, first_gpu: int, rendered: Rendered, launch: Launch) -> Iterator[Process]:
    post, spec = tenant.post, tenant.spec
    device = None if spec.hardware is None else accelerator(spec.hardware)
    gpus = ("--base-gpu-id", str(first_gpu)) if first_gpu else ()
    for node in range(post.role.nodes):
        words = (*server_head(launch), "--model-path", spec.model, *rendered.words, *gpus)
        argv, env = enclose((*words, *post.words(node)), rendered.env, launch, device, post.host(node))
        yield Process(post.role.role, post.instance, node, argv, env)


def _router(topology: Topology, router: RouterSpec, launch: Launch) -> Process:
    words = [launch.interpreter, "-m", _ROUTER_MODULE, "--pd-disaggregation"]
    for post in _posts(topology, launch.sites):
        words += [f"--{post.role.role}", post.url]
        if post.role.role == "prefill":
            words.append(str(post.bootstrap))
    if router.policy is not None:
        words += ["--policy", router.policy]
    if router.retries is False:
        words.append("--disable-retries")
    site = launch.sites.get(ROUTER, RoleHosts())
    words += [] if site.bind is None else ["--host", site.bind]
    host = site.hosts[0] if site.hosts else "$ROUTER_HOST"
    argv, env = enclose([*words, "--port", str(site.port or ROUTER_PORT)], {}, launch, None, host)
    return Process(ROUTER, 0, 0, argv, env)
