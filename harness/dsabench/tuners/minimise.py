"""The least of a function of a few numbers: small spaces whole, larger ones by Optuna."""

from __future__ import annotations

import itertools
import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParameterChoices:
    """One parameter: its allowed values, ascending."""

    name: str
    values: Sequence[float]


def minimise(
    choices: Sequence[ParameterChoices],
    objective: Callable[[Mapping[str, float]], float],
    *,
    evaluations: int,
    seed: int,
) -> dict[str, float]:
    """The values with the least objective; of equal ones the first found.

    A space of at most `evaluations` points is tried whole. In a larger one Optuna's TPE chooses so many; one
    seed gives one answer.
    """
    if math.prod(len(choice.values) for choice in choices) > evaluations:
        return _by_tpe(choices, objective, evaluations, seed)
    names = [choice.name for choice in choices]
    points = (dict(zip(names, point, strict=True)) for point in itertools.product(*(c.values for c in choices)))
    return min(points, key=objective)


def _by_tpe(
    choices: Sequence[ParameterChoices],
    objective: Callable[[Mapping[str, float]], float],
    evaluations: int,
    seed: int,
) -> dict[str, float]:
    import optuna  # noqa: PLC0415  (half a second)

    def values(ranks: Mapping[str, int]) -> dict[str, float]:
        return {choice.name: choice.values[ranks[choice.name]] for choice in choices}

    def ask(trial: optuna.Trial) -> float:
        # By rank: what a step between neighbouring cuts does is alike, however far apart they are.
        return objective(values({c.name: trial.suggest_int(c.name, 0, len(c.values) - 1) for c in choices}))

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = optuna.create_study(
                sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=evaluations // 3)
            )
            study.optimize(ask, n_trials=evaluations)
    finally:
        optuna.logging.set_verbosity(verbosity)
    return values(study.best_params)
