"""A deployment as shell scripts: the commands of each machine, and a job of Slurm."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from dsabench.emit.deployment import NODE, Deployment, variables_of
from dsabench.runtimes.command import PLACEHOLDER, in_shell, public_env
from dsabench.runtimes.deployment import part_name

if TYPE_CHECKING:
    from dsabench.runtimes.plan import PlannedProcess


def command_script(processes: Sequence[PlannedProcess], comment: str) -> str:
    """One command as it is; of several, the one whose name is given, on the machine where it belongs."""
    commands = [(part_name(one), in_shell(one.argv, public_env(one.env))) for one in processes]
    if len(commands) == 1:
        return f"#!/bin/sh\n{comment}{commands[0][1]}\n"
    names = "|".join(name for name, _ in commands)
    cases = "\n".join(f"{name})\n  {command}\n  ;;" for name, command in commands)
    return (
        f"#!/bin/sh\n{comment}# Each process is started on its own machine: $0 {names}\n"
        f'case "${{1:-}}" in\n{cases}\n*)\n  echo "usage: $0 {names}" >&2\n  exit 2\n  ;;\nesac\n'
    )


def slurm_files(deployment: Deployment) -> dict[str, str]:
    """`launch.sbatch`: `sbatch launch.sbatch`."""
    import jinja2  # noqa: PLC0415  (a tenth of a second that only a job pays)

    text = resources.files(__package__).joinpath("payload", "launch.sbatch.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(  # noqa: S701 (a shell script; its words are quoted for the shell)
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    script = environment.from_string(text).render(
        comment=deployment.comment,
        name=deployment.name,
        nodes=deployment.nodes,
        gpus=deployment.gpus_per_node,
        container=_container(deployment),
        steps=list(_steps(deployment)),
        front=_front(deployment),
    )
    return {"launch.sbatch": script}


def _steps(deployment: Deployment) -> Iterator[str]:
    for instance in deployment.instances:
        for node, process in zip(instance.nodes, instance.processes, strict=True):
            yield _start(process, node)
    yield "\n".join(f'wait_for "{_address(one.nodes[0], one.port)}"' for one in deployment.instances)
    if deployment.router is not None:
        # After the others: it gives up workers that do not answer yet.
        yield _start(deployment.router, 0)
        yield f'wait_for "{_front(deployment)}"'


def _front(deployment: Deployment) -> str:
    """Where requests go. A router on loopback is asked there, by the script that runs beside it."""
    if deployment.router is None:
        first = deployment.instances[0]
        return _address(first.nodes[0], first.port)
    if deployment.router_bind.startswith("127."):
        return f"{deployment.router_bind}:{deployment.router_port}"
    return _address(0, deployment.router_port)


def _address(node: int, port: int) -> str:
    return f"$NODE_{node}:{port}"


def _start(process: PlannedProcess, node: int) -> str:
    """Secrets are left out: Slurm hands the variables of the submitting shell on."""
    shown = [f"{name}={value}" for name, value in variables_of(process).items() if value is not None]
    words = (*(("env", *shown) if shown else ()), *process.argv)
    lines = [f" \\\n  {_quoted(word)}" if word.startswith("--") else f" {_quoted(word)}" for word in words]
    return f'start {part_name(process)} "$NODE_{node}"{"".join(lines)}'


def _quoted(word: str) -> str:
    """Addresses of nodes, and variables that a config leaves to the shell, stay open to it."""
    if not NODE.search(word) and not PLACEHOLDER.search(word):
        return shlex.quote(word)
    escaped = re.sub(r'(["`\\]|\$(?![A-Za-z_{]))', r"\\\1", word)
    return '"' + NODE.sub(r"$NODE_\1", escaped) + '"'


def _container(deployment: Deployment) -> str:
    """Of Pyxis, where the config or `--image` names a container."""
    if not deployment.image:
        return ""
    model = deployment.model
    mounts = [f"--container-mounts={model}:{model}:ro"] if deployment.has_own_weights else []
    return "".join(f" {shlex.quote(word)}" for word in (f"--container-image={deployment.image}", *mounts))
