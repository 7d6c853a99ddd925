"""The canonical names of everything that can be set on a runtime: `knobs.yaml` as values.

One name, whatever the installed version calls it (its flags were renamed three times). The config refuses names
that are not listed there; each runtime refuses those that it lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsabench.model.tables import read_table

_TYPES: dict[str, type] = {"text": str, "int": int, "float": float, "bool": bool}


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting: its type, allowed values if they are few or its least and greatest one, and one line of meaning."""

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
