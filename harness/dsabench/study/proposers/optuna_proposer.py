"""`gp` and `tpe`: a sampler of Optuna over a study that is kept between proposals and follows the history."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from dsabench.model.space import canonical, is_legal, key_of
from dsabench.model.study import Assignment, SearchSpace
from dsabench.study.proposers.proposer import Observation, SearchTask, SeenSettings
from dsabench.study.proposers.random import draw_unseen, generator

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler

ATTEMPTS = 24
"""Draws from the sampler before a new assignment is drawn uniformly instead."""

MakeSampler = Callable[[int], "BaseSampler"]
"""Seed of one proposal → sampler."""


@dataclass(frozen=True)
class OptunaProposer:
    """Ask a sampler of Optuna. Its study lives in memory and is only a copy of the history: a proposal depends on the history and
    the seed alone.
    """

    task: SearchTask
    make_sampler: MakeSampler
    drawn_first: int = 0
    """Number of measured settings, drawn uniformly, before the sampler is asked."""

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        """One proposal of the sampler, with the seed and the length of the history; None if nothing is left."""
        task, active = self.task, [self._active(one) for one in history]
        known = task.seen(history)
        if task.legal.listed is not None and not known.unseen.any():
            return None
        rng = generator(task.seed, len(history))
        told = [one for one in active if is_legal(task.space, task.base, one.assignment)]
        if sum(one.value is not None for one in told) >= self.drawn_first and task.space.axes:
            with _quiet():
                drawn = self._drawn(told, known, rng.randrange(1 << 32))
                if drawn is not None:
                    return drawn
        return draw_unseen(task, history, rng)

    def _drawn(self, told: Sequence[Observation], known: SeenSettings, seed: int) -> Assignment | None:
        from dsabench.study.proposers.optuna_trials import suggest  # noqa: PLC0415

        study = self._copy.follow(told)
        study.sampler = self.make_sampler(seed)
        for _ in range(ATTEMPTS):
            # A draw that was rejected stays "running". The constant liar then treats it as bad, so the next draw goes
            # elsewhere.
            drawn = suggest(self.task.space, self.task.base, study.ask())
            if key_of(drawn) not in known and is_legal(self.task.space, self.task.base, drawn):
                return drawn
        return None

    def _active(self, observation: Observation) -> Observation:
        return replace(observation, assignment=canonical(self.task.space, self.task.base, observation.assignment))

    @cached_property
    def _copy(self) -> _StudyCopy:
        return _StudyCopy(self.task.space, self.task.direction)


class _StudyCopy:
    """A study of Optuna that follows a history: new observations are added, and only another history begins it anew."""

    def __init__(self, space: SearchSpace, direction: Literal["maximize", "minimize"]) -> None:
        self._space, self._direction = space, direction
        self._told: list[Observation] = []
        self._study: Study | None = None

    def follow(self, history: Sequence[Observation]) -> Study:
        """The study of a history. What is under way is a running trial."""
        from optuna import create_study  # noqa: PLC0415  (half a second, and only these strategies need it)
        from optuna.trial import TrialState  # noqa: PLC0415

        from dsabench.study.proposers.optuna_trials import trial_of  # noqa: PLC0415

        settled = [one for one in history if not one.is_under_way]
        under_way = [one for one in history if one.is_under_way]
        if self._study is None or settled[: len(self._told)] != self._told:
            self._study, self._told = create_study(direction=self._direction), []
        study = self._study
        # Rejected draws, and settings that were under way at the last proposal. Samplers ignore trials that failed.
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(trial.number, state=TrialState.FAIL)
        study.add_trials([trial_of(self._space, one) for one in settled[len(self._told) :]])
        study.add_trials([trial_of(self._space, one, pending=True) for one in under_way])
        self._told = settled
        return study


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
