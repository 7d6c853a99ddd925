"""`tpe`: Optuna's tree-structured Parzen estimator, rebuilt from the history for each proposal."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from dsabench.model.space import canonical, is_active, is_legal, key_of, ordered_axes
from dsabench.model.study import Assignment, Axis, SearchSpace
from dsabench.model.value import KnobValue
from dsabench.study.proposers.proposer import Observation
from dsabench.study.proposers.random import draw_unseen, generator, seen

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial


ATTEMPTS = 24
"""Draws from the estimator before a new assignment is drawn uniformly instead."""


@dataclass(frozen=True, slots=True)
class TpeProposer:
    """Prefer values that gave good results. Axes are modelled jointly, conditional ones by group.

    A setting that failed or was refused counts as infeasible and worse than every measured one. A measured one that
    violates constraints counts by the size of its violation.
    """

    space: SearchSpace
    base: Assignment
    seed: int = 0
    direction: Literal["maximize", "minimize"] = "maximize"
    startup: int = 8
    """Number of measured settings, drawn uniformly, before the estimator is used."""

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        """Draw with the seed and the length of the history; None if nothing is left."""
        known = seen(self.space, self.base, history)
        rng = generator(self.seed, len(history))
        axes = [replace(one, assignment=canonical(self.space, self.base, one.assignment)) for one in history]
        told = [observation for observation in axes if is_legal(self.space, self.base, observation.assignment)]
        measured = sum(observation.value is not None for observation in told)
        if measured >= self.startup and self.space.axes:
            with _quiet():
                study = self._study(told, rng.randrange(1 << 32))
                for _ in range(ATTEMPTS):
                    drawn = self._suggest(study.ask())
                    if key_of(drawn) not in known and is_legal(self.space, self.base, drawn):
                        return drawn
        return draw_unseen(self.space, self.base, known, rng)

    def _study(self, told: Sequence[Observation], seed: int) -> Study:
        import optuna  # noqa: PLC0415 (half a second, and only this strategy needs it)

        # A draw that was rejected stays "running". The constant liar then treats it as bad, so the next draw goes
        # elsewhere.
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=0, multivariate=True, group=True, constant_liar=True
        )
        study = optuna.create_study(direction=self.direction, sampler=sampler)
        study.add_trials([self._trial(observation) for observation in told])
        return study

    def _trial(self, observation: Observation) -> FrozenTrial:
        import optuna  # noqa: PLC0415

        axes = {axis.name: axis for axis in self.space.axes}
        failed = observation.value is None
        return optuna.trial.create_trial(
            state=optuna.trial.TrialState.PRUNED if failed else optuna.trial.TrialState.COMPLETE,
            value=observation.value,
            params={name: _to_optuna(axes[name], value) for name, value in observation.assignment.items()},
            distributions={name: _distribution(axes[name]) for name in observation.assignment},
            constraints={"violation": math.inf if failed else observation.violation},
        )

    def _suggest(self, trial: Trial) -> Assignment:
        """One assignment. It may be a forbidden combination, which the caller rejects."""
        settings, chosen = dict(self.base), dict[str, KnobValue]()
        for axis in ordered_axes(self.space):
            if is_active(self.space, axis.name, settings):
                chosen[axis.name] = settings[axis.name] = _suggested(trial, axis)
        return MappingProxyType(chosen)


def _is_ordered(axis: Axis) -> bool:
    """Whether neighbours of this axis behave alike: numbers with more than two values."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in axis.values)
    return numbers and len(axis.values) > 2


def _distribution(axis: Axis) -> BaseDistribution:
    """Ordered axes are modelled by rank, so that steps of 1 and steps of 2× are treated alike."""
    from optuna.distributions import CategoricalDistribution, IntDistribution  # noqa: PLC0415

    return IntDistribution(0, len(axis.values) - 1) if _is_ordered(axis) else CategoricalDistribution(axis.values)


def _to_optuna(axis: Axis, value: KnobValue) -> KnobValue:
    return sorted(axis.values).index(value) if _is_ordered(axis) else value


def _suggested(trial: Trial, axis: Axis) -> KnobValue:
    if _is_ordered(axis):
        return sorted(axis.values)[trial.suggest_int(axis.name, 0, len(axis.values) - 1)]
    value = trial.suggest_categorical(axis.name, axis.values)
    assert value is not None, "an axis has no None"
    return value


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide Optuna's log lines and its notes about experimental arguments."""
    import optuna  # noqa: PLC0415

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
