"""Where and with what a runtime is started. Nothing of it is part of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dsabench.config.specs import ContainerConfig
from dsabench.model.topology import RoleHosts
from dsabench.runtimes.lifeline import Lifeline

Entry = Literal["launch_server", "serve"]


@dataclass(frozen=True, slots=True)
class Launch:
    """How the config says to start a runtime, or where the server is that somebody else started."""

    python: Path | None = None
    """Interpreter of the runtime; None takes the one that runs dsabench, or for sglang `python3` from the PATH."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables for the runtime's processes; those of the spec win over them. May hold secrets."""
    base_url: str | None = None
    """Only for `external`."""
    command_prefix: tuple[str, ...] = ()
    """Words before the command: `srun …`, `ssh HOST`."""
    container: ContainerConfig | None = None
    entry: Entry = "launch_server"
    """`python -m sglang.launch_server`, or `sglang serve`."""
    sites: Mapping[str, RoleHosts] = field(default_factory=dict)
    """Role, or `router` → where its instances stand."""
    lifeline: Lifeline | None = None
    """For commands that are run and not only written: what ends the far side of a prefix or container."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether a client (`ssh`, `srun`, `docker run`) starts the server, which is then no child of this process."""
        return bool(self.command_prefix) or self.container is not None

    @property
    def first_host(self) -> str | None:
        """The machine that is asked what is installed; None where no site names one."""
        return next((host for site in self.sites.values() for host in site.hosts[:1]), None)

    @property
    def interpreter(self) -> str:
        """The word that starts the runtime's Python; a path with folders is made absolute, links kept."""
        given = self.python
        if given is None:
            return "python3"
        return str(given.expanduser().absolute()) if not self.is_elsewhere and len(given.parts) > 1 else str(given)
