"""A reference spec with a topology → one command per process: servers, or prefill, decode and router."""

from __future__ import annotations

import os
from collections.abc import Iterator

from dsabench.errors import InputError
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import ROUTER, SINGLE, Role, RoleHosts, RouterSpec, Topology
from dsabench.runtimes.launch import Launch
from dsabench.runtimes.ports import HOST
from dsabench.runtimes.protocol import Place
from dsabench.runtimes.reference import FLAGS, Reference
from dsabench.runtimes.sglang.posts import PORT_STEP
from dsabench.runtimes.sglang.topology import Plan, Process, role_specs

_ROUTER_MODULE = "dsabench.serving.router"
_FIRST_PORT, _ROUTER_PORT, _BOOTSTRAP_PORT = 30000, 8000, 8998
"""Where nobody leased any, as in a dry run."""


def plan_roles(reference: Reference, spec: RuntimeSpec, place: Place, launch: Launch) -> Plan:
    """The commands, on the ports of the launch's sites. Servers share the cores.

    Raises:
        InputError: a role over several machines, or a knob that this runtime lacks.

    """
    topology = spec.topology or SINGLE
    servers = sum(role.instances for role in topology.roles)
    cores = place.cores or tuple(sorted(os.sched_getaffinity(0)))
    threads = max(1, len(cores) // servers)
    processes: list[Process] = []
    for number, (role, own) in enumerate(role_specs(spec)):
        if role.nodes > 1:
            raise InputError(f"runtime.topology.roles.{number}.nodes: the reference runtime serves on one machine")
        known = own if "cpu_threads" in own.knobs else replace_knob(own, "cpu_threads", threads)
        recipe = reference.recipe(known, place)
        for instance in range(role.instances):
            argv = (*recipe.argv(_port(launch, role, instance, number)), *_words(launch, role, instance))
            processes.append(Process(role.role, instance, 0, argv, recipe.env))
    if topology.router is not None:
        processes.append(_router(reference, topology, topology.router, launch))
    return Plan(tuple(processes), ())


def replace_knob(spec: RuntimeSpec, name: str, value: int) -> RuntimeSpec:
    """The spec with one more knob."""
    assert name in FLAGS, "a knob of this runtime"
    return spec.model_copy(update={"knobs": {**spec.knobs, name: value}})


def _site(launch: Launch, role: str) -> RoleHosts:
    return launch.sites.get(role, RoleHosts())


def _port(launch: Launch, role: Role, instance: int, number: int) -> int:
    port = _site(launch, role.role).port
    first = port if isinstance(port, int) else _FIRST_PORT + 100 * number
    return first + PORT_STEP * instance


def _bootstrap_port(launch: Launch, instance: int) -> int:
    """As the lease reserves them: one beside each instance's own port."""
    port = _site(launch, "prefill").bootstrap_port
    return port + PORT_STEP * instance if isinstance(port, int) else _BOOTSTRAP_PORT + instance


def _words(launch: Launch, role: Role, instance: int) -> Iterator[str]:
    if role.role != "server":
        yield from ("--disaggregation-mode", role.role)
    if role.role == "prefill":
        yield from ("--disaggregation-bootstrap-port", str(_bootstrap_port(launch, instance)))


def _router(reference: Reference, topology: Topology, router: RouterSpec, launch: Launch) -> Process:
    words = [str(reference.python), "-m", _ROUTER_MODULE, "--pd-disaggregation"]
    for number, role in enumerate(topology.roles):
        for instance in range(role.instances):
            words += [f"--{role.role}", f"http://{HOST}:{_port(launch, role, instance, number)}"]
            words += [str(_bootstrap_port(launch, instance))] if role.role == "prefill" else []
    words += [] if router.policy is None else ["--policy", router.policy]
    words += ["--disable-retries"] if router.retries is False else []
    port = _site(launch, ROUTER).port
    words += ["--host", HOST, "--port", str(port if isinstance(port, int) else _ROUTER_PORT)]
    return Process(ROUTER, 0, 0, tuple(words), {**reference.source_path, **reference.launch.env})
