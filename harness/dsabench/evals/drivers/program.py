"""What every driver says: the command lines to run, and where the predictions then lie."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from dsabench.errors import InputError
from dsabench.evals.ask import Target
from dsabench.model.evals import EvalSpec

DriverName = Literal["nemo-skills", "sgl-eval"]


@dataclass(frozen=True, slots=True)
class Commission:
    """What a driver is asked for."""

    spec: EvalSpec
    """With the user's wishes in place."""
    target: Target
    program: str
    """Path of the driver's own program."""
    folder: Path
    """Empty folder for everything it writes."""
    data: Path | None = None


@dataclass(frozen=True, slots=True)
class Errands:
    """How a driver does it."""

    commands: tuple[tuple[str, ...], ...]
    """Run one after the other; the first that fails ends it."""
    predictions: str
    """Glob below the folder: one JSONL for each repeat."""
    harness_id: str
    env: Mapping[str, str] = field(default_factory=dict)


class Driver(Protocol):
    """Turns a commission into command lines."""

    def __call__(self, commission: Commission, /) -> Errands:
        """Say what to run.

        Raises:
            InputError: the driver cannot do what is asked.

        """


PROGRAMS: dict[DriverName, tuple[str, str]] = {
    "nemo-skills": ("ns", "docs/evals.md says how to install NeMo-Skills in an environment of its own"),
    "sgl-eval": ("sgl-eval", "pip install sgl-eval, in an environment of its own"),
}
"""Driver → its program, and how to get it."""


def find_program(name: DriverName, given: Path | None) -> str:
    """The program's path.

    Raises:
        InputError: it is not there; the line says how to get it.

    """
    program, way = PROGRAMS[name]
    found = shutil.which(str(given) if given is not None else program)
    if found is None:
        where = f"{given}: no such program" if given is not None else f"no program {program} on the PATH"
        raise InputError(f"driver {name}: {where}; {way}, and name it with --driver-program")
    return found
