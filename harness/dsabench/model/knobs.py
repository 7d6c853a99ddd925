"""The canonical names of everything that can be set on a runtime, read from `knobs.yaml`.

A name stays the same in all versions, although flags were renamed three times. A config refuses unknown names, and
each runtime refuses those that it lacks. Arguments of a runtime that have no name here are `args.NAME`.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsabench.model.tables import read_table

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
