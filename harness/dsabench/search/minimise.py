"""The least of a function of a few numbers, by Optuna."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """One parameter: its allowed values, ascending."""

    name: str
    values: Sequence[float]


def minimise(
    choices: Sequence[Choice], objective: Callable[[Mapping[str, float]], float], *, evaluations: int, seed: int
) -> dict[str, float]:
    """The values with the least objective. Small spaces are tried whole, in order; larger ones by TPE.

    Of equal objectives the first found wins, so that one seed gives one answer.
    """
    if not choices:
        return {}
    import optuna  # noqa: PLC0415  (half a second)

    size = 1
    for choice in choices:
        size *= len(choice.values)
    ranks = {choice.name: list(range(len(choice.values))) for choice in choices}
    sampler: optuna.samplers.BaseSampler
    if size <= evaluations:
        sampler = optuna.samplers.GridSampler(ranks, seed=seed)
    else:
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=evaluations // 4)
    known: dict[tuple[float, ...], float] = {}

    def ask(trial: optuna.Trial) -> float:
        chosen = {c.name: c.values[trial.suggest_int(c.name, 0, len(c.values) - 1)] for c in choices}
        key = tuple(chosen.values())
        if key not in known:
            known[key] = objective(chosen)
        return known[key]

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = optuna.create_study(sampler=sampler)
            study.optimize(ask, n_trials=min(size, evaluations))
    finally:
        optuna.logging.set_verbosity(verbosity)
    best = min(known, key=lambda key: known[key])
    return {choice.name: value for choice, value in zip(choices, best, strict=True)}
