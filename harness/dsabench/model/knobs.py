"""The canonical names of everything that can be set on a runtime, read from `knobs.yaml`.

A name stays the same in all versions, although flags were renamed three times. A config refuses unknown names, and
each runtime refuses those that it lacks. Arguments of a runtime that have no name here are `args.NAME`; settings of one role of a deployment are `ROLE.NAME`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import isfinite

from dsabench.model.tables import read_table
from dsabench.model.value import KnobValue

_TYPES: dict[str, type] = {"text": str, "int": int, "float": float, "bool": bool}


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting: its type, its allowed values or range, and one line of meaning."""

    name: str
    type: type
    meaning: str
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None


KNOBS: dict[str, Knob] = {
    name: Knob(name, _TYPES[row["type"]], row["meaning"], tuple(row.get("choices", ())), row.get("min"), row.get("max"))
    for group in read_table("knobs.yaml").values()
    for name, row in group.items()
}

ARGS = "args."
"""Before the name of an argument that a config passes to the runtime under the runtime's own name."""
ROLES = ("prefill", "decode")
"""Before the name of a knob, with a point: the knob of that role's servers alone."""


def of_role(name: str) -> tuple[str | None, str]:
    """The role that a name is for, None for all of them, and the knob: `decode.hisparse` is `("decode", "hisparse")`."""
    role, point, knob = name.partition(".")
    return (role, knob) if point and role in ROLES else (None, name)


def argument_name(flag: str) -> str:
    """The name of a flag's argument: `--hicache-ratio` → `hicache_ratio`."""
    return flag.removeprefix("--").replace("-", "_")


def argument_value(text: str) -> KnobValue:
    """A word of a command line: a number where the number would be written so, else the text."""
    for kind in (int, float):
        with suppress(ValueError):
            number = kind(text)
            if isfinite(number) and str(number) == text:
                return number
    return text
