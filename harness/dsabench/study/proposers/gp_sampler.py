"""`gp`: a Gaussian process over all legal settings, as a sampler of Optuna."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from dsabench.model.study import Assignment
from dsabench.study.proposers.gaussian_process import FittedProcess, Floats, SettingKernel, fit_process
from dsabench.study.proposers.gp_choice import (
    NOISE,
    KnownSettings,
    Prior,
    log_expected_gain,
    log_running,
    log_share_of_trials,
)
from dsabench.study.proposers.legal_settings import Codes
from dsabench.study.proposers.optuna_trials import distribution, observation_of, to_optuna
from dsabench.study.proposers.proposer import ENOUGH_EARLIER, Observation, SearchTask
from dsabench.study.proposers.random import draw_some, generator

SAMPLED = 10_000
"""Settings that are rated in a space too large to list, beside the neighbours of the best ones."""
_NEIGHBOURS_OF = 5
_BOUND = 3.0
"""How much more a value counts in the start-up if its axis lifts what limits the best setting so far."""


class LegalSettingsSampler(BaseSampler):
    """Rate every legal setting that was not tried, and take the best.

    The first settings show every value of every axis once. From `startup` settings with a value on, the one with the largest
    expected gain per second is taken: a Gaussian process predicts the logarithm of the objective, `survival` whether a setting
    runs. Values have to be above 0. Trials may carry the user attributes `violation` and `seconds`. A running trial counts as one
    whose value comes out as predicted. A setting that differs from the last one in `reload_free` axes alone takes no boot; with the
    user attribute `boot_s` it is known what that saves.
    """

    def __init__(self, task: SearchTask, *, startup: int = 5) -> None:
        self._task, self._legal, self._startup = task, task.legal, startup

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002  (Optuna's protocol)
        """All axes; those that are inactive in the proposed setting are not suggested."""
        return {axis.name: distribution(axis) for axis in self._legal.space.axes}

    def sample_relative(
        self,
        study: Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],  # noqa: ARG002  (Optuna's protocol)
    ) -> dict[str, Any]:
        """The parameters of the proposed setting; none if every legal setting was tried."""
        states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
        others = [one for one in study.get_trials(deepcopy=False, states=states) if one.number != trial.number]
        history = [observation_of(self._legal.space, one) for one in others]
        found = self.propose(history, 1.0 if study.direction is StudyDirection.MAXIMIZE else -1.0)
        axes = {axis.name: axis for axis in self._legal.space.axes}
        return {} if found is None else {name: to_optuna(axes[name], value) for name, value in found.items()}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Any value: only where no setting was proposed."""
        return RandomSampler(self._task.seed).sample_independent(study, trial, param_name, param_distribution)

    def propose(self, history: Sequence[Observation], sign: float) -> Assignment | None:
        """The next setting, with a sign of 1 where larger is better; None if every legal one was tried."""
        settings = [one.assignment for one in history]
        known = _known(self._legal.encode(settings), history, sign)
        candidates, codes = self._candidates(settings, known)
        if not candidates:
            return None
        cheaper = -log_share_of_trials(known) * self._on_boot(history, candidates)
        random_ties = np.random.default_rng([self._task.seed, len(history)]).random(len(candidates))
        boots = {self._task.boot_of(one.assignment) for one in history if one.value is not None}
        if len(boots) < self._startup or not known.runs.any() or not self._kernel.columns:
            rating = self._new_values(known, codes, _limits(history, sign)) * np.exp(cheaper) + 0.5 * random_ties
        else:
            prior = self._prior(sign)
            rating = log_expected_gain(known, self._kernel, codes, prior) + cheaper + 1e-6 * random_ties
        return candidates[int(np.argmax(rating))]

    def _on_boot(self, history: Sequence[Observation], candidates: Sequence[Assignment]) -> npt.NDArray[np.bool_]:
        """Which settings the running server can be changed to."""
        running = self._task.running(history)
        if running is None:
            return np.zeros(len(candidates), dtype=bool)
        boot = self._task.boot_of(running)
        return np.array([self._task.boot_of(one) == boot for one in candidates], dtype=bool)

    def _prior(self, sign: float) -> Prior | None:
        """What earlier studies let expect; None if they measured too few settings of this space."""
        process = self._earlier
        if process is None:
            return None
        return lambda codes: sign * process.predict(self._kernel.levels(codes))[0]

    @cached_property
    def _earlier(self) -> FittedProcess | None:
        told = self._legal.space.earlier
        if len(told) < ENOUGH_EARLIER or not self._kernel.columns:
            return None
        codes = self._legal.encode([one.setting for one in told])
        values = np.log([one.value for one in told])
        return fit_process(self._kernel, self._kernel.levels(codes), values, noise=NOISE)

    @cached_property
    def _kernel(self) -> SettingKernel:
        return SettingKernel.of_space(self._legal.space, self._sample_codes)

    @cached_property
    def _sample_codes(self) -> Codes:
        return self._legal.codes if self._legal.listed is not None else self._legal.encode(self._sample)

    @cached_property
    def _sample(self) -> Sequence[Assignment]:
        """All legal settings, or some of a space too large to list."""
        if self._legal.listed is not None:
            return self._legal.listed
        return draw_some(self._legal, SAMPLED, generator(self._task.seed))

    def _candidates(self, settings: Sequence[Assignment], known: KnownSettings) -> tuple[list[Assignment], Codes]:
        """The settings that were not tried, and their codes."""
        sample, codes = self._sample, self._sample_codes
        if self._legal.listed is None:
            columns = range(len(self._legal.space.axes))
            order = np.argsort(np.where(known.runs, -known.values, math.inf))[:_NEIGHBOURS_OF]
            near = [one for place in order for one in self._legal.neighbours(settings[place], columns)]
            sample, codes = [*sample, *near], np.concatenate([codes, self._legal.encode(near)])
        tried = {row.tobytes() for row in known.codes}
        left = [place for place, row in enumerate(codes) if row.tobytes() not in tried]
        return [sample[place] for place in left], codes[left]

    def _new_values(self, known: KnownSettings, codes: Codes, limits: frozenset[str]) -> Floats:
        """How many values of axes a setting shows for the first time, weighed with the probability that it runs. Those of axes that
        lift the limit of the best setting so far count more, those of axes that lift another one do not.
        """
        shown = known.codes[known.has_value]
        new: Floats = np.zeros(len(codes))
        for column in self._kernel.columns:
            lifts = self._legal.space.when_bound.get(self._legal.space.axes[column].name)
            weight = 1.0 if lifts is None or not limits else _BOUND if lifts in limits else 0.0
            new += weight * ~np.isin(codes[:, column], shown[:, column])
        return (1.0 + new) * np.exp(log_running(known, self._kernel, self._kernel.levels(codes)))


def _limits(history: Sequence[Observation], sign: float) -> frozenset[str]:
    """Of the best setting so far."""
    feasible = [one for one in history if one.value is not None and not one.violation]
    return max(feasible, key=lambda one: sign * (one.value or 0.0)).limits if feasible else frozenset()


def _known(codes: Codes, history: Sequence[Observation], sign: float) -> KnownSettings:
    """Values of 0 and below have no logarithm: such a setting counts as failed."""
    values = [sign * math.log(one.value) if one.value is not None and one.value > 0 else math.nan for one in history]
    failed = [
        not one.is_under_way and (math.isnan(value) or one.violation > 0)
        for one, value in zip(history, values, strict=True)
    ]
    seconds = np.array([one.seconds or math.nan for one in history])
    boot_seconds = np.array([one.boot_s or math.nan for one in history])
    return KnownSettings(codes, np.array(values), np.array(failed, dtype=bool), seconds, boot_seconds)
