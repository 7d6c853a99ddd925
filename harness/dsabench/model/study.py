"""What a study searches and what counts: space, objective, budget, proposer, gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from dsabench.model.value import FrozenMap, KnobValue, Value

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


class ImpliedKnobs(Value):
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
    follow: tuple[ImpliedKnobs, ...] = ()
    """Knobs that are no choice of their own; given by who plans a study, not by its file."""

    def brought_by(self, settings: Assignment) -> dict[str, KnobValue]:
        """The knobs that follow from the settings (base ∪ assignment)."""
        return {name: value for one in self.follow if holds(one.when, settings) for name, value in one.then.items()}


class MetricLimit(Value):
    """A limit on one metric; a measurement outside it is infeasible."""

    metric: str
    max: float | None = None
    min: float | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> MetricLimit:
        if self.max is None and self.min is None:
            raise ValueError("needs max or min")
        return self


class Objective(Value):
    """What is optimised. Over several workloads it is the geometric mean."""

    metric: str
    direction: Literal["maximize", "minimize"]
    constraints: tuple[MetricLimit, ...] = ()


class Budget(Value):
    """Where a sweep stops. None sets no limit."""

    max_trials: PositiveInt | None = None
    """Trials of the search; confirmation comes on top."""
    max_boots: PositiveInt | None = None
    """Boots of search and confirmation together; confirm_boots for each side are kept for the confirmation."""
    time_s: PositiveFloat | None = None
    confirm_boots: int = Field(3, ge=0)
    """Boots a side, best against default, interleaved; 0 skips the confirmation."""
    confirm_first: bool = False
    """Confirm the settings of `first` too, in the same turns, and hold the best against each of them."""

    def sides(self, listed: int) -> int:
        """Settings that are confirmed, at most, where `first` lists so many: the best may be one of them."""
        return 2 + (listed if self.confirm_first else 0)


class ProposerSpec(Value):
    """Which strategy proposes the next setting."""

    kind: Literal["grid", "random", "tpe"] = "grid"
    seed: int = 0


class GateSpec(Value):
    """An accuracy eval that a faster setting must not fail."""

    eval: str
    """A name of evals/, or a file."""
    data: str | None = None
    """The eval's data file; null: fetched once, then cached."""
    measure: Literal["score", "agreement"] = "score"
    """`agreement`: not which answers are right, but which are the default's own, word for word. For models that can answer
    none of the questions, and where a change of answers is itself what matters."""
    margin: float = Field(0.01, gt=0.0, lt=1.0)
    """Largest loss that is accepted, as a share of 1."""
    repeat: PositiveInt = 4
    """Passes over the questions for each of the two settings."""
    finalists: PositiveInt = 3
    """Settings that are confirmed and scored, at most: after one that is less accurate comes the next best."""

    @model_validator(mode="after")
    def _first_pass_is_the_key(self) -> GateSpec:
        if self.measure == "agreement" and self.repeat < 2:
            raise ValueError(
                "measure agreement needs repeat 2 or more: the first pass of the default is what is agreed with"
            )
        return self
