"""Strategies that choose the next setting, one per file. `PROPOSERS` lists them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from dsabench.config.specs import StudyConfig
from dsabench.model.space import count
from dsabench.study.proposers.coordinate import CoordinateProposer
from dsabench.study.proposers.expected import Worth, expected_values, measured_values
from dsabench.study.proposers.grid import GridProposer
from dsabench.study.proposers.optuna_proposer import OptunaProposer
from dsabench.study.proposers.proposer import Observation, Proposer, SearchTask
from dsabench.study.proposers.random import RandomProposer
from dsabench.study.proposers.same_boot import SameBootFirst

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

__all__ = [
    "PROPOSERS",
    "Observation",
    "Proposer",
    "SearchTask",
    "StartUp",
    "make_proposer",
    "proposer_for",
    "startup_of",
    "task_of",
]

_FEW = 16
"""Settings of a budget or a space below which the start-up is shorter."""


class StartUp(NamedTuple):
    """The first settings of a strategy that learns."""

    settings: int
    """Settings with a value before results decide."""
    chosen: str
    """How they are chosen, as a plan says it."""


class Strategy(NamedTuple):
    """A way to choose settings."""

    make: Callable[[SearchTask], Proposer]
    learns: bool = False
    """Whether results decide; else all its settings are known ahead."""
    startup: Callable[[SearchTask], StartUp] = lambda _: StartUp(0, "")
    weighs_boots: bool = False
    """Whether it decides itself when a boot is left; else only when nothing is left on it."""
    worth: Worth = measured_values
    """What tells the best one of the settings that were measured."""


def _start_drawn(_: SearchTask) -> StartUp:
    return StartUp(8, "drawn at random")


def _make_tpe(task: SearchTask) -> Proposer:
    def sampler(seed: int) -> BaseSampler:
        from optuna.samplers import TPESampler  # noqa: PLC0415  (half a second)

        return TPESampler(seed=seed, n_startup_trials=0, multivariate=True, group=True, constant_liar=True)

    return OptunaProposer(task, sampler, drawn_first=_start_drawn(task).settings)


def _make_nsga2(task: SearchTask) -> Proposer:
    def sampler(seed: int) -> BaseSampler:
        from dsabench.study.proposers.generations import GenerationsSampler  # noqa: PLC0415  (half a second)

        return GenerationsSampler(seed)

    return OptunaProposer(task, sampler, drawn_first=_start_drawn(task).settings)


def _start_gp(task: SearchTask) -> StartUp:
    settings = count(task.space, task.base, _FEW)
    if task.settings is not None:
        settings = min(settings, task.settings)
    return StartUp(4 if settings < _FEW else 5, "each value of an axis once")


def _make_gp(task: SearchTask) -> Proposer:
    @cache
    def sampler() -> BaseSampler:
        from dsabench.study.proposers.gp_sampler import LegalSettingsSampler  # noqa: PLC0415  (half a second)

        return LegalSettingsSampler(task, startup=_start_gp(task).settings)

    return OptunaProposer(task, lambda _: sampler())


PROPOSERS: dict[str, Strategy] = {
    "gp": Strategy(_make_gp, learns=True, startup=_start_gp, weighs_boots=True, worth=expected_values),
    "tpe": Strategy(_make_tpe, learns=True, startup=_start_drawn),
    "nsga2": Strategy(_make_nsga2, learns=True, startup=_start_drawn),
    "grid": Strategy(GridProposer),
    "random": Strategy(RandomProposer),
    "coordinate": Strategy(CoordinateProposer, learns=True),
}
"""`proposer.kind` of a config → strategy."""


def make_proposer(config: StudyConfig) -> Proposer:
    """Make the strategy of a config for its space and base settings."""
    return proposer_for(config.proposer.kind, task_of(config))


def proposer_for(kind: str, task: SearchTask) -> Proposer:
    """Make the strategy of that kind."""
    strategy = PROPOSERS[kind]
    proposer = strategy.make(task)
    return SameBootFirst(proposer, task) if task.reload_free and not strategy.weighs_boots else proposer


def startup_of(config: StudyConfig) -> StartUp:
    """The start-up of a config's strategy."""
    return PROPOSERS[config.proposer.kind].startup(task_of(config))


def task_of(config: StudyConfig) -> SearchTask:
    """What the strategy of a config is made for."""
    most = config.budget.max_trials
    settings = None if most is None else -(-most // len(config.workloads))
    return SearchTask(
        config.searched_space,
        config.runtime.base,
        config.proposer.seed,
        config.objective.direction,
        settings,
        config.reload_free,
    )
