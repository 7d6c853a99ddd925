"""What each kind of runtime takes in a config, and what is assumed of it: `runtime_kinds.yaml` as values."""

from __future__ import annotations

from functools import cache
from typing import cast

from dsabench.model.runtime import RuntimeKind
from dsabench.model.tables import read_table
from dsabench.model.value import FrozenMap, Value


class RuntimeKindInfo(Value):
    """One kind of runtime."""

    is_driven: bool
    """Whether studies measure it."""
    is_launched: bool
    """Whether `dsabench launch` writes its commands."""
    refused: FrozenMap[str]
    """Key below `runtime`, or `sweeps` → why it must keep its default."""
    needs_base_url: bool = False
    needs_tokenizer: bool = False
    """Whether datasets of text need a tokenizer's folder: the others tell their own, or take what the server says."""
    machines: int | None = None
    """Machines that one instance spans, at most."""
    models: tuple[str, ...] | None = None
    knobs: FrozenMap[tuple[str, ...]] | None = None
    """The knobs that it has, with their choices where they are fewer than all."""
    caveat: str | None = None
    """What every result of it says."""
    assumed_boot_s: float
    assumed_trial_s: float
    passes: int = 1
    """Times that a load is sent for one trial, rehearsals included."""
    stream_tok_s: float | None = None
    """Generated tokens a second and stream, as assumed before anything is measured."""
    prefill_tok_s: float | None = None
    """Prompt tokens a second, as assumed."""


@cache
def runtime_kinds() -> dict[RuntimeKind, RuntimeKindInfo]:
    """All of them."""
    table = read_table("runtime_kinds.yaml", __package__)
    return {cast("RuntimeKind", kind): RuntimeKindInfo(**info) for kind, info in table.items()}
