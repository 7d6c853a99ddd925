"""Settings as trials of Optuna, and back."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from dsabench.model.space import is_active
from dsabench.model.study import Assignment, Axis, SearchSpace
from dsabench.model.value import KnobValue
from dsabench.study.proposers.legal_settings import is_ordered
from dsabench.study.proposers.proposer import Observation

FAULT, VIOLATION, SECONDS, BOOT_S, LIMITS = "fault", "violation", "seconds", "boot_s", "limits"
"""User attributes of a trial; see `Observation`."""


def distribution(axis: Axis) -> BaseDistribution:
    """Ordered axes are modelled by rank, so that steps of 1 and steps of 2× are treated alike."""
    return IntDistribution(0, len(axis.values) - 1) if is_ordered(axis) else CategoricalDistribution(axis.values)


def to_optuna(axis: Axis, value: KnobValue) -> KnobValue:
    """The parameter of a value."""
    return sorted(axis.values).index(value) if is_ordered(axis) else value


def from_optuna(axis: Axis, param: Any) -> KnobValue:
    """The value of a parameter."""
    value: KnobValue = sorted(axis.values)[param] if is_ordered(axis) else param
    return value


def to_assignment(space: SearchSpace, params: dict[str, Any]) -> Assignment:
    """The setting that has these parameters."""
    axes = {axis.name: axis for axis in space.axes}
    return {name: from_optuna(axes[name], param) for name, param in params.items()}


def suggest(space: SearchSpace, base: Assignment, trial: Trial) -> Assignment:
    """One setting of a trial. A sampler that does not know `forbid` may suggest a forbidden one."""
    settings, chosen = dict(base), dict[str, KnobValue]()
    for axis in space.ordered:
        if is_active(space, axis.name, settings):
            chosen[axis.name] = settings[axis.name] = from_optuna(axis, _suggested(trial, axis))
    return MappingProxyType(chosen)


def _suggested(trial: Trial, axis: Axis) -> Any:
    if is_ordered(axis):
        return trial.suggest_int(axis.name, 0, len(axis.values) - 1)
    return trial.suggest_categorical(axis.name, axis.values)


def observation_of(space: SearchSpace, trial: FrozenTrial) -> Observation:
    """A trial as an observation. A pruned one failed, also without the attribute."""
    told, is_under_way = trial.user_attrs, trial.state is TrialState.RUNNING
    value = trial.value if trial.state is TrialState.COMPLETE else None
    fault = told.get(FAULT) or (None if is_under_way or value is not None else "failed")
    setting, violation = to_assignment(space, trial.params), told.get(VIOLATION) or 0.0
    return Observation(
        setting, value, violation, fault, told.get(SECONDS), told.get(BOOT_S), frozenset(told.get(LIMITS) or ())
    )


def trial_of(space: SearchSpace, observation: Observation, *, pending: bool = False) -> FrozenTrial:
    """An observation as a trial. A setting that failed is pruned, and violates the constraints more than any measured one."""
    axes = {axis.name: axis for axis in space.axes}
    failed = observation.value is None
    params = {name: to_optuna(axes[name], value) for name, value in observation.assignment.items()}
    state = TrialState.RUNNING if pending else TrialState.PRUNED if failed else TrialState.COMPLETE
    attributes = {
        FAULT: observation.fault,
        VIOLATION: observation.violation,
        SECONDS: observation.seconds,
        BOOT_S: observation.boot_s,
        LIMITS: sorted(observation.limits),
    }
    return create_trial(
        state=state,
        value=observation.value,
        params=params,
        distributions={name: distribution(axes[name]) for name in params},
        user_attrs=attributes,
        constraints={VIOLATION: math.inf if failed else observation.violation},
    )
