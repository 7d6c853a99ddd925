"""NSGA-II for settings that are told one by one: every eight that were measured are a generation."""

from __future__ import annotations

from optuna.samplers import NSGAIISampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

POPULATION = 8
"""Settings of a generation: a night on a node has three."""


class GenerationsSampler(NSGAIISampler):
    """Optuna's sampler, which keeps the generation of a trial in the study's storage, where a study that is read from records has none."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed, population_size=POPULATION)

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:  # noqa: ARG002  (Optuna's protocol)
        """The generation of a new trial."""
        return len(_measured(study)) // POPULATION

    def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        """The trials of a generation."""
        return _measured(study)[generation * POPULATION : (generation + 1) * POPULATION]

    def select_parent(self, study: Study, generation: int) -> list[FrozenTrial]:
        """The parents of a generation, in the order in which the study keeps them: a resumed search continues identically."""
        return sorted(super().select_parent(study, generation), key=lambda one: one.number)


def _measured(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
