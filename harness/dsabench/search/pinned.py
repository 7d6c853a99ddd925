"""Which measured setting is a study's default, where the study pinned knobs for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from dsabench.config.specs import StudyConfig
from dsabench.model.runtime import RuntimeSpec


def measured_default(config: StudyConfig, specs: Sequence[RuntimeSpec]) -> RuntimeSpec | None:
    """The config's default, be it with a knob that every setting has and the config does not name; None where it was not measured.

    `tune hisparse` pins the device pool so, to one size or to each setting's own.
    """
    if not specs:
        return None
    wanted = config.default
    axes = {axis.name for axis in config.space.axes}
    pinned = set.intersection(*(set(spec.knobs) for spec in specs)) - set(wanted.knobs) - axes
    for spec in specs:
        named = {name: value for name, value in spec.knobs.items() if name not in pinned}
        if named == wanted.knobs and spec.model_copy(update={"knobs": wanted.knobs}) == wanted:
            return spec
    return None
