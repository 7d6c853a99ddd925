"""The search space: axes, when an axis is active, which combinations are forbidden."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from dsabench.model.knobs import KnobValue
from dsabench.model.value import FrozenMap, Value

Assignment = Mapping[str, KnobValue]
"""Axis name → chosen value; an inactive axis is not in it."""


def holds(conditions: Assignment, settings: Assignment) -> bool:
    """Whether the settings have every value that the conditions name."""
    return all(name in settings and settings[name] == value for name, value in conditions.items())


class Axis(Value):
    """One knob and the values to try, in the order given."""

    name: str
    values: tuple[KnobValue, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Axis:
        if len({(type(v), v) for v in self.values}) < len(self.values):
            raise ValueError("values repeat")
        return self


class Consequence(Value):
    """What settings bring along: where all of `when` hold (base or axes), the knobs of `then` are set too."""

    when: FrozenMap[KnobValue]
    then: FrozenMap[KnobValue]


class SearchSpace(Value):
    """A finite product of axes with conditions. Partial assignments in `when` and `forbid` are conjunctions."""

    axes: tuple[Axis, ...]
    when: FrozenMap[FrozenMap[KnobValue]] = Field(default_factory=dict)
    """Axis name → the settings (base or axes) under which it is active; inactive, the base or default holds."""
    forbid: tuple[FrozenMap[KnobValue], ...] = ()
    """Combinations (base included) never to try."""
    follow: tuple[Consequence, ...] = ()
    """Knobs that are no choice of their own; given by who plans a study, not by its file."""

    def brought_by(self, settings: Assignment) -> dict[str, KnobValue]:
        """The knobs that follow from the settings (base ∪ assignment)."""
        return {name: value for one in self.follow if holds(one.when, settings) for name, value in one.then.items()}
