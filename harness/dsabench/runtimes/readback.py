"""Each knob as asked and as the server runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from dsabench.model.runtime import RuntimeSpec
from dsabench.model.value import value_text

RunsAs = Callable[[str], JsonValue | None]
"""Name of a knob → what the server says it is; None where it does not say."""


@dataclass(frozen=True, slots=True)
class KnobReadback:
    """A knob as asked and as the server says it runs; None where it does not say."""

    name: str
    asked: str
    runs: str | None
    differs: bool


def read_knobs(
    spec: RuntimeSpec, resolved: Mapping[str, JsonValue], runs_as: RunsAs, *, by_text: bool
) -> tuple[KnobReadback, ...]:
    """Every knob of the spec, of records of any age.

    A knob differs where the record says so; `by_text` also where the two texts do.
    """
    own = resolved.get("dsabench")
    own = own if isinstance(own, Mapping) else {}
    said = own.get("differs", own.get("differences"))
    differing = {str(line).partition(":")[0] for line in said} if isinstance(said, list | tuple) else set()
    rows = []
    for name, asked in spec.knobs.items():
        value = runs_as(name)
        runs = None if value is None else value_text(value)
        differs = name in differing or (by_text and runs is not None and runs != value_text(asked))
        rows.append(KnobReadback(name, value_text(asked), runs, differs))
    return tuple(rows)
