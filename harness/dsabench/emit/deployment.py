"""A setting as a deployment: which process stands on which machine, before a scheduler's own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dsabench.config.knob_types import nested
from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import RuntimeConfig
from dsabench.errors import InputError
from dsabench.model.hardware import Platform, accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.secrets import looks_secret
from dsabench.model.topology import ROUTER, SINGLE, RoleHosts, Topology
from dsabench.runtimes.command import Launch, launch_of
from dsabench.runtimes.kinds import runtime_of
from dsabench.runtimes.plan import PlannedProcess, instances_of, role_specs
from dsabench.runtimes.sites import ROUTER_PORT, Tenant
from dsabench.sglang.images import released_image

Form = Literal["compose", "helm", "k8s", "lws", "ray", "slurm"]

HERE = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104 (pods and nodes are reached from others)
NODE = re.compile(r"\{node(\d+)\}")
"""Stands for the address of a node that the scheduler chooses: `{node0}`."""
RELEASE = "helm-release-name"
"""The name of a deployment that becomes a chart; it is replaced by the name of the release."""
CACHE = "/root/.cache/huggingface"
"""Where the runtime keeps what it downloads, in the images."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One server of a role. Its machines compute together, and the first one answers."""

    name: str
    """`server`, or `prefill-1` where there are several."""
    nodes: tuple[int, ...]
    """Number of each of its machines among those of the deployment."""
    gpus: int
    """On each of its machines; 0 where none is used."""
    port: int
    """HTTP."""
    other_ports: tuple[int, ...]
    """Where ranks, and the two halves of a disaggregated deployment, find each other."""
    processes: tuple[PlannedProcess, ...]
    """One a machine, by node rank."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """All servers of a setting, and the router in front of them."""

    name: str
    """A DNS label."""
    why: tuple[str, ...]
    """The evidence, a line each."""
    model: str
    image: str
    """Empty where the processes run outside a container."""
    platform: Platform
    ready_timeout_s: float
    instances: tuple[Instance, ...]
    router: PlannedProcess | None
    router_bind: str
    """The address that the router listens on."""
    router_port: int
    runtime: Mapping[str, object]
    """What a config says of it, without places and secrets."""

    @property
    def nodes(self) -> int:
        """Number of its machines."""
        return 1 + max(max(instance.nodes) for instance in self.instances)

    @property
    def gpus_per_node(self) -> int:
        """On the machine that has the most to do."""
        of_node = [sum(one.gpus for one in self.instances if node in one.nodes) for node in range(self.nodes)]
        return max(of_node)

    @property
    def has_own_weights(self) -> bool:
        """Whether the model is a folder; else it is a name that the runtime downloads."""
        return self.model.startswith("/")

    @property
    def comment(self) -> str:
        """The evidence as lines of comment."""
        return as_comment(self.why)


def as_comment(lines: Iterable[str]) -> str:
    """Lines of comment of a script or YAML, each with its line break."""
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def variables_of(process: PlannedProcess) -> dict[str, str | None]:
    """What a process in a container gets; None for a secret, which is taken from where it is deployed. The hub's token is one."""
    named = {name: None if looks_secret(name) else value for name, value in process.env.items()}
    return {**named, "HF_TOKEN": None}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is deployed, and how."""

    config: RuntimeConfig
    spec: RuntimeSpec
    version: str | None
    """Of the runtime; None for the one that is installed."""
    name: str
    why: tuple[str, ...]
    image: str | None = None
    """In place of the one that is known for the version and the hardware."""


def deployment_of(wanted: Wanted, form: Form) -> Deployment:
    """The processes of a setting with the addresses that they have under that scheduler.

    Raises:
        InputError: it has no such form: several machines, no container image, or a server that is started elsewhere.

    """
    spec, config = wanted.spec, wanted.config
    topology = spec.topology or SINGLE
    if "launch.sites" in runtime_kinds()[spec.kind].refused:
        raise InputError(f"{form}: kind {spec.kind} serves on the machine that starts it: its command does it")
    if form == "compose" and any(role.nodes > 1 for role in topology.roles):
        raise InputError("compose is for one machine, and this spans several: lws, k8s, helm or slurm")
    name = RELEASE if form == "helm" else dns_label(wanted.name)
    launch = launch_of(config)
    instances = _placed(form, spec, launch.sites)
    sites = _sites(form, topology, name, instances, launch.sites)
    bare = (
        Launch(python=launch.python, env=launch.env, entry=launch.entry)
        if form == "slurm"
        else Launch(entry=launch.entry)
    )
    runtime = runtime_of(config.kind, replace(bare, sites=sites))
    processes = runtime.plan(spec, wanted.version, sites=sites).processes
    if not processes:
        raise InputError(f"{form}: a server of kind {spec.kind} is started by somebody else")
    device = None if spec.hardware is None else accelerator(spec.hardware)
    router = next((process for process in processes if process.role == ROUTER), None)
    site = sites.get(ROUTER, RoleHosts(bind=EVERYWHERE, port=ROUTER_PORT))
    assert site.bind is not None
    assert isinstance(site.port, int)
    return Deployment(
        name=name,
        why=wanted.why,
        model=spec.model,
        image=_image(wanted, form),
        platform="cuda" if device is None else device.platform,
        ready_timeout_s=config.ready_timeout_s,
        instances=tuple(_instances(instances, sites, processes, has_gpus=runtime.gpus(spec) > 0)),
        router=router,
        router_bind=site.bind,
        router_port=site.port,
        runtime=without_places(
            config.model_copy(update={"model": spec.model, "env": spec.env, "topology": spec.topology})
        ),
    )


def without_places(config: RuntimeConfig) -> dict[str, object]:
    """A runtime as a config writes it. Where it lies, and tokens, are this machine's."""
    env = {name: value for name, value in config.env.items() if not looks_secret(name)}
    public = config.model_copy(update={"env": env})
    kept = public.model_dump(mode="json", exclude_defaults=True, exclude={"launch", "ready_timeout_s"})
    return {**kept, "base": nested(config.base)}


def dns_label(text: str, longest: int = 40) -> str:
    """A name that Kubernetes, compose and DNS take; `longest` leaves room for what is added behind it."""
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].strip("-")
    return label if label[:1].isalpha() else f"dsa-{label}".strip("-")


def _image(wanted: Wanted, form: Form) -> str:
    container = wanted.config.launch.container
    named = wanted.image or (None if container is None else container.image)
    if form == "ray" and wanted.image is None:
        raise InputError("ray: the image needs dsabench and Ray beside sglang: name it with --image")
    if form == "slurm" and container is None and wanted.image is None:
        return ""
    if named is not None:
        return named
    hardware = wanted.spec.hardware
    known = released_image(None if hardware is None else accelerator(hardware), wanted.version)
    if known is None:
        raise InputError(f"{form}: no container image is known for this; name one with --image")
    return known


@dataclass(frozen=True, slots=True)
class _Placed:
    """One server of a role on its machines."""

    tenant: Tenant
    nodes: tuple[int, ...]
    """Number of each of its machines among those of the deployment."""

    @property
    def name(self) -> str:
        """`server`, or `prefill-1` where there are several."""
        return self.tenant.name.replace(" ", "-")

    def hosts(self, form: Form, deployment: str) -> tuple[str, ...]:
        """Addresses of its machines."""
        if form == "compose":
            return (HERE,) * len(self.nodes)
        if form == "slurm":
            return tuple(f"{{node{number}}}" for number in self.nodes)
        service = f"{deployment}-{self.name}"
        return tuple(f"{service}-{rank}.{service}" for rank in range(len(self.nodes)))


def _placed(form: Form, spec: RuntimeSpec, given: Mapping[str, RoleHosts]) -> list[_Placed]:
    """Every server, and which machines it is on: its own, but one for all under compose, and under Slurm those of one name are one."""
    own, seen = {role.role: changed for role, changed in role_specs(spec)}, list[str]()
    found = []
    for post in instances_of(spec.topology or SINGLE, given if form == "slurm" else {}):
        tenant = Tenant(post, own[post.role.role], {})
        machines = [
            HERE if form == "compose" else post.host(node) if post.site.hosts else f"{tenant.name} {node}"
            for node in range(post.role.nodes)
        ]
        seen += [machine for machine in dict.fromkeys(machines) if machine not in seen]
        found.append(_Placed(tenant, tuple(map(seen.index, machines))))
    return found


def _sites(
    form: Form, topology: Topology, name: str, placed: Sequence[_Placed], given: Mapping[str, RoleHosts]
) -> dict[str, RoleHosts]:
    """Ports as the config has them, and the hosts that there are under the scheduler."""
    sites: dict[str, RoleHosts] = {}
    for role in topology.roles:
        of_role = [one for one in placed if one.tenant.post.role.role == role.role]
        hosts = tuple(host for one in of_role for host in one.hosts(form, name))
        sites[role.role] = _with_ports(given.get(role.role, RoleHosts()), hosts, form)
    if topology.router is not None:
        host = {"compose": HERE, "slurm": "{node0}"}.get(form, f"{name}-{ROUTER}")
        site = _with_ports(given.get(ROUTER, RoleHosts()), (host,), form)
        sites[ROUTER] = site.model_copy(update={"port": site.port or ROUTER_PORT, "bind": site.bind or EVERYWHERE})
    return sites


def _with_ports(site: RoleHosts, hosts: tuple[str, ...], form: Form) -> RoleHosts:
    """A port that the config leaves to a shell is left to the runtime."""
    ports = {key: getattr(site, key) for key in ("port", "dist_port", "bootstrap_port")}
    kept = {key: port for key, port in ports.items() if isinstance(port, int)}
    bind = {"compose": HERE, "slurm": site.bind}.get(form, EVERYWHERE)
    return RoleHosts(hosts=hosts, bind=bind, **kept)


def _instances(
    placed: Sequence[_Placed],
    sites: Mapping[str, RoleHosts],
    processes: tuple[PlannedProcess, ...],
    *,
    has_gpus: bool,
) -> Iterator[Instance]:
    for one in placed:
        role, number = one.tenant.post.role.role, one.tenant.post.instance
        post = replace(one.tenant.post, site=sites[role])
        others = (post.dist_port, post.bootstrap if role == "prefill" else None)
        assert isinstance(post.http, int)
        yield Instance(
            name=one.name,
            nodes=one.nodes,
            gpus=one.tenant.gpus if has_gpus else 0,
            port=post.http,
            other_ports=tuple(port for port in others if isinstance(port, int)),
            processes=tuple(process for process in processes if (process.role, process.instance) == (role, number)),
        )


def with_rank(processes: tuple[PlannedProcess, ...], rank: str) -> tuple[str, ...]:
    """The words that all machines of an instance have in common, with what stands for the rank of each."""
    first = list(processes[0].argv)
    if len(processes) > 1:
        first[first.index("--node-rank") + 1] = rank
    return tuple(first)
