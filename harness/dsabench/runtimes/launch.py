"""Where and with what a runtime is started. Nothing of it is part of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dsabench.config.specs import ContainerSpec
from dsabench.model.topology import Site

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
    container: ContainerSpec | None = None
    entry: Entry = "launch_server"
    """`python -m sglang.launch_server`, or `sglang serve`."""
    sites: Mapping[str, Site] = field(default_factory=dict)
    """Role, or `router` → where its instances stand."""

    @property
    def interpreter(self) -> str:
        """The word that starts the runtime's Python; a path with folders is made absolute, links kept."""
        given = self.python
        if given is None:
            return "python3"
        local = self.container is None and not self.command_prefix
        return str(given.expanduser().absolute()) if local and len(given.parts) > 1 else str(given)
