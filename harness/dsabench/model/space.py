"""The search space: axes, when an axis is active, which combinations are forbidden."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from dsabench.model.knobs import KnobValue
from dsabench.model.value import FrozenMap, Value

Assignment = Mapping[str, KnobValue]
"""Axis name → chosen value; an inactive axis is not in it."""


class Axis(Value):
    """One knob and the values to try, in the order given."""

    name: str
    values: tuple[KnobValue, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Axis:
        if len({(type(v), v) for v in self.values}) < len(self.values):
            raise ValueError("values repeat")
        return self


class SearchSpace(Value):
    """A finite product of axes with conditions. Partial assignments in `when` and `forbid` are conjunctions."""

    axes: tuple[Axis, ...]
    when: FrozenMap[FrozenMap[KnobValue]] = Field(default_factory=dict)
    """Axis name → the settings (base or axes) under which it is active; inactive, the base or default holds."""
    forbid: tuple[FrozenMap[KnobValue], ...] = ()
    """Combinations (base included) never to try."""
