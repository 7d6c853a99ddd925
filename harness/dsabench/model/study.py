"""What a study searches and optimises: space, objective, budget, proposer, gate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from dsabench.errors import InputError
from dsabench.model.bottleneck import BindingLimit
from dsabench.model.value import FrozenMap, KnobValue, Value
from dsabench.model.verdict import ABLATE_BOOTS_MIN, BOOTS_MIN

Assignment = Mapping[str, KnobValue]
"""Axis name → value. Inactive axes are missing."""


def holds(conditions: Assignment, settings: Assignment) -> bool:
    """Whether the settings have every value in the conditions."""
    return all(name in settings and settings[name] == value for name, value in conditions.items())


class Axis(Value):
    """One knob and the values to try, in the given order."""

    name: str
    values: tuple[KnobValue, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Axis:
        if len({(type(v), v) for v in self.values}) < len(self.values):
            raise ValueError("values repeat")
        return self


class ImpliedKnobs(Value):
    """Knobs that follow from others: if all of `when` hold (in base or axes), the knobs of `then` are set too."""

    when: FrozenMap[KnobValue]
    then: FrozenMap[KnobValue]


class EarlierValue(Value):
    """A setting that an earlier study measured, or of which kernel times let something expect."""

    setting: FrozenMap[KnobValue]
    value: float
    """The objective, as a multiple of the geometric mean of the settings that are told with it."""
    told_by: Literal["study", "kernels"] = "study"


class SearchSpace(Value):
    """A finite product of axes with conditions. The items of one condition are combined with AND."""

    axes: tuple[Axis, ...]
    when: FrozenMap[FrozenMap[KnobValue]] = Field(default_factory=dict)
    """Axis name → the settings (base or axes) under which it is active. Inactive, it keeps the base's value."""
    forbid: tuple[FrozenMap[KnobValue], ...] = ()
    """Combinations (including the base) that are never tried."""
    when_bound: FrozenMap[BindingLimit] = Field(default_factory=dict)
    """Axis name → the limit of the best setting so far under which it is worth an early look."""
    follow: tuple[ImpliedKnobs, ...] = ()
    """Knobs that are not chosen but follow from others. The planner of a study sets them, not its file."""
    enqueued: tuple[FrozenMap[KnobValue], ...] = ()
    """Settings that a tuner's arithmetic expects to be good, the best first: measured before the proposer is asked. The planner sets
    them, too.
    """
    earlier: tuple[EarlierValue, ...] = ()
    """What earlier studies measured of these settings, or kernel times let expect, from which a proposer may start. The planner of a study
    sets it.
    """

    @cached_property
    def ordered(self) -> tuple[Axis, ...]:
        """The axes, each behind those of its conditions; otherwise in the given order.

        Raises:
            InputError: the conditions form a cycle.

        """
        axes = {axis.name: axis for axis in self.axes}
        needs = {name: [needed for needed in self.when.get(name, {}) if needed in axes] for name in axes}
        try:
            names = list(TopologicalSorter(needs).static_order())
        except CycleError as error:
            raise InputError(f"the conditions of the axes form a cycle: {' → '.join(error.args[1])}") from error
        depth: dict[str, int] = {}
        for name in names:
            depth[name] = max((depth[needed] + 1 for needed in needs[name]), default=0)
        # Sort by depth only, which is stable. The topological sorter would shuffle independent axes.
        return tuple(sorted(self.axes, key=lambda axis: depth[axis.name]))

    def brought_by(self, settings: Assignment) -> dict[str, KnobValue]:
        """The knobs that follow from these settings (base and assignment)."""
        return {name: value for one in self.follow if holds(one.when, settings) for name, value in one.then.items()}


class MetricLimit(Value):
    """A limit on one metric. A measurement outside it is infeasible."""

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
    numerics: Literal["any", "same"] = "any"
    """`same` lets only settings win that compute as the default does up to rounding. The others are not proposed; what `first` lists of
    them is measured and stands beside, as `accuracy unproven`. For studies without an eval, as on random weights.
    """

    @property
    def sign(self) -> float:
        """1 where larger is better, else -1."""
        return 1.0 if self.direction == "maximize" else -1.0


class Budget(Value):
    """Limits of a study. None sets no limit."""

    max_trials: PositiveInt | None = None
    """Trials of the search. The confirmation is additional."""
    max_boots: PositiveInt | None = None
    """Boots of search and confirmation together. `confirm_boots` for each side are reserved for the confirmation."""
    time_s: PositiveFloat | None = None
    gpu_hours: PositiveFloat | None = None
    """GPU-hours of the round, those of earlier runs included: boots, trials and evals, each times the GPUs of its setting. A boot that
    would exceed them does not start.
    """
    confirm_boots: int = Field(3, ge=0)
    """Boots per side of the confirmation, best and default in turns; 0 skips it."""
    stop_when_decided: bool = False
    """Look at the confirmation after every pair of boots from the third on, and stop once its verdict stands. `confirm_boots` is
    then the most that it takes.
    """
    confirm_first: bool = False
    """Also confirm the settings of `first`, in the same turns, and compare the best one with each of them."""
    confirm_second: bool = False
    """Also confirm the second best setting of the search, in the same turns: the better one of the two in these boots wins. The verdict
    is corrected for the choice.
    """
    confirm_exact: bool = False
    """Where the best setting may change answers, also confirm, in the same turns, the best of those that compute as the default does:
    it may be a default without any eval.
    """
    ablate: bool = False
    """Then boot the winner beside itself without each of its changes, and drop the changes that it does not need. These boots and the
    confirmation of what remains are beyond `max_boots`, not beyond `time_s`.
    """

    @property
    def why_no_ablation(self) -> str | None:
        """Why these limits do not go with an ablation: what remains must be confirmed by itself. None if they do."""
        if self.others_confirmed is not None:
            return f"goes without {self.others_confirmed}"
        if self.confirm_boots < BOOTS_MIN:
            return f"takes confirm_boots of {BOOTS_MIN} or more, to confirm what remains"
        return None

    @property
    def ablate_boots(self) -> int:
        """Boots of each setting of an ablation: as of a confirmation, but at least four."""
        return ABLATE_BOOTS_MIN if self.stop_when_decided else max(ABLATE_BOOTS_MIN, self.confirm_boots)

    def sides(self, listed: int) -> int:
        """Number of settings that are confirmed at most, if `first` lists this many: the best one may be among them."""
        return 2 + (listed if self.confirm_first else 0) + self.confirm_exact + self.confirm_second

    @property
    def others_confirmed(self) -> str | None:
        """The key that has other settings confirmed beside the best; None where there is none."""
        keys = ("confirm_first", "confirm_exact", "confirm_second")
        return next((key for key in keys if getattr(self, key)), None)


class ProposerSpec(Value):
    """The strategy that proposes the next setting."""

    kind: Literal["gp", "tpe", "nsga2", "random", "grid", "coordinate"] = "gp"
    seed: int = 0


class GateSpec(Value):
    """An accuracy eval that a faster setting must pass."""

    eval: str
    """The name of an eval in evals/, or a file."""
    data: str | None = None
    """The eval's data file; null downloads it once."""
    measure: Literal["score", "agreement"] = "score"
    """`agreement` compares the answers with the default's own, word for word, and ignores whether they are right. Use
    it for models that can answer none of the questions, or if any change of answers matters.
    """
    margin: float = Field(0.01, gt=0.0, lt=1.0)
    """Largest accepted loss, as a share of 1."""
    repeat: PositiveInt | None = None
    """Passes over the questions for each of the two settings. Null takes as many as accept a setting that is as accurate as
    the default in 80 of 100 runs; for `agreement` two.
    """
    finalists: PositiveInt = 3
    """Number of settings that are confirmed and scored at most. If one is less accurate, the next best one follows."""
    ask: Literal["finalists", "settings"] = "finalists"
    """Who answers: what is confirmed, or every setting of the search in its boot. The search then avoids what is less accurate,
    only what passes is confirmed, and the report draws speed against accuracy.
    """

    @property
    def agreement_passes(self) -> int:
        """Passes of `agreement`: what is stated, else two."""
        return self.repeat or 2

    @model_validator(mode="after")
    def _first_pass_is_the_key(self) -> GateSpec:
        if self.measure == "agreement" and self.repeat == 1:
            raise ValueError(
                "measure agreement needs repeat 2 or more: the first pass of the default is what is agreed with"
            )
        return self
