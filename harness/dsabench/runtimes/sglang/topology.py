"""A spec with a topology → one command and environment per process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.model.knobs import KnobValue
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import ROUTER, SINGLE, Role, Router, Site, Topology
from dsabench.runtimes.launch import Launch
from dsabench.runtimes.sglang.accepts import Accepted
from dsabench.runtimes.sglang.command import enclose, public_env, public_words, server_head
from dsabench.runtimes.sglang.hardware import accelerator
from dsabench.runtimes.sglang.remarks import Remark
from dsabench.runtimes.sglang.render import Rendered, render
from dsabench.runtimes.sglang.settle import settled_knobs

PORT_STEP = 300
"""Between instances: DP attention takes ports at port + 13 and port + 233 to + 239, or dist port + 1 to + 13."""
_FIRST_PORT, _FIRST_DIST_PORT, _ROUTER_PORT = 30000, 20000, 8000
_BOOTSTRAP_PORT = 8998
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
    processes: list[Process] = []
    remarks: list[Remark] = []
    index = 0
    for role, own in role_specs(spec):
        rendered = render(own.knobs, own.env, accepted)
        remarks += [remark for remark in rendered.remarks if remark not in remarks]
        for instance in range(role.instances):
            post = _Post(topology, role, instance, index, launch.sites.get(role.role, Site()))
            processes += _nodes(post, own, rendered, launch)
            index += 1
    if topology.router is not None:
        processes.append(_router(topology, topology.router, launch))
    return Plan(tuple(processes), tuple(remarks))


def _check_sites(topology: Topology, sites: Mapping[str, Site]) -> None:
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


@dataclass(frozen=True, slots=True)
class _Post:
    """One instance and where it stands."""

    topology: Topology
    role: Role
    instance: int
    index: int
    """Over all roles, for ports."""
    site: Site

    @property
    def alone(self) -> bool:
        return self.topology.processes == 1

    def host(self, node: int = 0) -> str:
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
        if self.site.dist_port is not None:
            return _spaced(self.site.dist_port, self.instance)
        return _FIRST_DIST_PORT + PORT_STEP * self.index if self.role.nodes > 1 else None

    @property
    def bootstrap_port(self) -> int | str | None:
        if self.role.role != "prefill":
            return None
        if self.site.bootstrap_port is not None:
            return _spaced(self.site.bootstrap_port, self.instance, 1)
        return _BOOTSTRAP_PORT + self.instance if self.role.instances > 1 else None

    @property
    def url(self) -> str:
        if self.site.urls:
            return self.site.urls[self.instance]
        return f"http://{self.host()}:{self.port or _FIRST_PORT}"

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
        here = self.alone and set(self.site.hosts) <= {"127.0.0.1", "localhost"}
        bind = self.site.bind or (None if here else "0.0.0.0")  # noqa: S104 (other machines have to reach it)
        if bind is not None:
            yield from ("--host", bind)
        if self.port is not None:
            yield from ("--port", str(self.port))


def _spaced(first: int | str, instance: int, step: int = PORT_STEP) -> int | str:
    return first if isinstance(first, str) else first + step * instance


def _nodes(post: _Post, spec: RuntimeSpec, rendered: Rendered, launch: Launch) -> Iterator[Process]:
    device = None if spec.hardware is None else accelerator(spec.hardware)
    for node in range(post.role.nodes):
        words = (*server_head(launch), "--model-path", spec.model, *rendered.words, *_gpus(post, spec.knobs))
        argv, env = enclose((*words, *post.words(node)), rendered.env, launch, device, post.host(node))
        yield Process(post.role.role, post.instance, node, argv, env)


def _gpus(post: _Post, knobs: Mapping[str, KnobValue]) -> tuple[str, ...]:
    """The first GPU of an instance that shares its machine with earlier ones of its role."""
    hosts = post.site.hosts
    if post.role.nodes > 1 or not hosts:
        return ()
    earlier = hosts[: post.instance].count(hosts[post.instance])
    ranks = int(knobs.get("tp_size", 1)) * int(knobs.get("pp_size", 1))
    return ("--base-gpu-id", str(earlier * ranks)) if earlier else ()


def _router(topology: Topology, router: Router, launch: Launch) -> Process:
    words = [launch.interpreter, "-m", _ROUTER_MODULE, "--pd-disaggregation"]
    index = 0
    for role in topology.roles:
        for instance in range(role.instances):
            post = _Post(topology, role, instance, index, launch.sites.get(role.role, Site()))
            words += [f"--{role.role}", post.url]
            if role.role == "prefill":
                words.append(str(post.bootstrap_port or _BOOTSTRAP_PORT))
            index += 1
    if router.policy is not None:
        words += ["--policy", router.policy]
    if router.retries is False:
        words.append("--disable-retries")
    site = launch.sites.get(ROUTER, Site())
    words += [] if site.bind is None else ["--host", site.bind]
    host = site.hosts[0] if site.hosts else "$ROUTER_HOST"
    argv, env = enclose([*words, "--port", str(site.port or _ROUTER_PORT)], {}, launch, None, host)
    return Process(ROUTER, 0, 0, argv, env)
