"""Where and with what a runtime is started. Nothing of it is part of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Launch:
    """How the config says to start a runtime, or where the server is that somebody else started."""

    python: Path | None = None
    """Interpreter of the runtime; None takes the one that runs dsabench."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables for the runtime's processes; those of the spec win over them. May hold secrets."""
    base_url: str | None = None
    """Only for `external`."""
