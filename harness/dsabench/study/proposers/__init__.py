"""Strategies that choose the next setting, one per file. `PROPOSERS` lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dsabench.config.specs import StudyConfig
from dsabench.model.space import count
from dsabench.study.proposers.coordinate import CoordinateProposer
from dsabench.study.proposers.grid import GridProposer
from dsabench.study.proposers.legal_settings import LegalSettings
from dsabench.study.proposers.optuna_proposer import OptunaProposer
from dsabench.study.proposers.proposer import Observation, Proposer, SearchTask
from dsabench.study.proposers.random import RandomProposer

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

__all__ = ["PROPOSERS", "Observation", "Proposer", "SearchTask", "make_proposer", "startup_of"]

_TPE_STARTUP = 8
_FEW = 16
"""Settings of a budget or a space below which the start-up is half as long."""


def startup_of(config: StudyConfig) -> int:
    """Settings with a value before the strategy learns from results; 0 for one that never does."""
    task = _task(config)
    return {"gp": _gp_startup(task), "tpe": _TPE_STARTUP}.get(config.proposer.kind, 0)


def _task(config: StudyConfig) -> SearchTask:
    most = config.budget.max_trials
    settings = None if most is None else -(-most // len(config.workloads))
    return SearchTask(config.space, config.runtime.base, config.proposer.seed, config.objective.direction, settings)


def _tpe(task: SearchTask) -> Proposer:
    return OptunaProposer(task, lambda _, seed: _tpe_sampler(seed), startup=_TPE_STARTUP)


def _tpe_sampler(seed: int) -> BaseSampler:
    from optuna.samplers import TPESampler  # noqa: PLC0415  (half a second)

    return TPESampler(seed=seed, n_startup_trials=0, multivariate=True, group=True, constant_liar=True)


def _gp_startup(task: SearchTask) -> int:
    settings = count(task.space, task.base, _FEW)
    if task.settings is not None:
        settings = min(settings, task.settings)
    return 4 if settings < _FEW else 8


def _gp(task: SearchTask) -> Proposer:
    startup = _gp_startup(task)

    def sampler(legal: LegalSettings, seed: int) -> BaseSampler:
        from dsabench.study.proposers.gp_sampler import LegalSettingsSampler  # noqa: PLC0415  (half a second)

        return LegalSettingsSampler(legal, seed=seed, startup=startup)

    return OptunaProposer(task, sampler)


PROPOSERS: dict[str, Callable[[SearchTask], Proposer]] = {
    "gp": _gp,
    "tpe": _tpe,
    "grid": lambda task: GridProposer(task.space, task.base, task.seed),
    "random": lambda task: RandomProposer(task.space, task.base, task.seed),
    "coordinate": lambda task: CoordinateProposer(task.space, task.base, task.seed, task.direction),
}
"""`proposer.kind` of a config → strategy."""


def make_proposer(config: StudyConfig) -> Proposer:
    """Make the strategy of a config for its space and base settings."""
    return PROPOSERS[config.proposer.kind](_task(config))
