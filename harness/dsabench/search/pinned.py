"""Which measured setting is a study's default, where the study pinned knobs for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from dsabench.model.runtime import RuntimeSpec


def measured_default(wanted: RuntimeSpec, specs: Sequence[RuntimeSpec]) -> RuntimeSpec | None:
    """The config's default, be it with knobs that every setting has (the pool of `tune hisparse`); None where it was not measured."""
    if not specs:
        return None
    pinned = set.intersection(*(set(spec.knobs.items()) for spec in specs)) - set(wanted.knobs.items())
    for spec in specs:
        named = {name: value for name, value in spec.knobs.items() if (name, value) not in pinned}
        if named == wanted.knobs and spec.model_copy(update={"knobs": wanted.knobs}) == wanted:
            return spec
    return None
