"""SGLang's command lines: servers, their nodes, the router."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from dsabench.model.hardware import accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import ROUTER, SINGLE, RoleHosts, RouterSpec, Topology
from dsabench.runtimes.command import Launch
from dsabench.runtimes.plan import LaunchPlan, PlannedProcess, check_sites, instances_of, role_specs, router_words
from dsabench.runtimes.sites import ROUTER_PORT, Tenant, check_ports, first_gpus
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.images import wrap_sglang
from dsabench.sglang.render import Rendered, render

_ROUTER_MODULE = "sglang_router.launch_router"


def server_head(launch: Launch) -> tuple[str, ...]:
    """The words that start the server, before its first flag."""
    if launch.entry == "serve":
        if launch.python is None:
            return ("sglang", "serve")
        return (str(PurePath(launch.interpreter).with_name("sglang")), "serve")
    return (launch.interpreter, "-m", "sglang.launch_server")


def plan_sglang(spec: RuntimeSpec, accepted: Accepted, launch: Launch) -> LaunchPlan:
    """The commands of a spec on that version.

    Raises:
        InputError: places that do not fit the topology.

    """
    topology = spec.topology or SINGLE
    check_sites(topology, launch.sites)
    tenants = [
        Tenant(post, own, {**launch.env, **own.env})
        for role, own in role_specs(spec)
        for post in instances_of(topology, launch.sites)
        if post.role.role == role.role
    ]
    check_ports(tenants, launch.sites.get(ROUTER, RoleHosts()) if topology.router is not None else None)
    rendered = {role.role: render(own.knobs, own.env, accepted) for role, own in role_specs(spec)}
    processes: list[PlannedProcess] = []
    for tenant, first_gpu in zip(tenants, first_gpus(tenants), strict=True):
        processes += _nodes(tenant, first_gpu, rendered[tenant.post.role.role], launch)
    if topology.router is not None:
        processes.append(_router(topology, topology.router, launch))
    remarks = dict.fromkeys(remark for said in rendered.values() for remark in said.remarks)
    return LaunchPlan(tuple(processes), tuple(remarks))


def _nodes(tenant: Tenant, first_gpu: int, rendered: Rendered, launch: Launch) -> Iterator[PlannedProcess]:
    post, spec = tenant.post, tenant.spec
    device = None if spec.hardware is None else accelerator(spec.hardware)
    gpus = ("--base-gpu-id", str(first_gpu)) if first_gpu else ()
    for node in range(post.role.nodes):
        words = (*server_head(launch), "--model-path", spec.model, *rendered.words, *gpus)
        argv, env = wrap_sglang((*words, *post.words(node)), rendered.env, launch, device, post.host(node))
        yield PlannedProcess(post.role.role, post.instance, node, argv, env)


def _router(topology: Topology, router: RouterSpec, launch: Launch) -> PlannedProcess:
    words = [launch.interpreter, "-m", _ROUTER_MODULE, *router_words(instances_of(topology, launch.sites), router)]
    site = launch.sites.get(ROUTER, RoleHosts())
    words += [] if site.bind is None else ["--host", site.bind]
    host = site.hosts[0] if site.hosts else "$ROUTER_HOST"
    argv, env = wrap_sglang([*words, "--port", str(site.port or ROUTER_PORT)], {}, launch, None, host)
    return PlannedProcess(ROUTER, 0, 0, argv, env)
