"""Strategies that choose the next setting, one per file. `PROPOSERS` lists them."""

from __future__ import annotations

from collections.abc import Callable

from dsabench.config.specs import StudyConfig
from dsabench.study.proposers.grid import GridProposer
from dsabench.study.proposers.proposer import Observation, Proposer
from dsabench.study.proposers.random import RandomProposer
from dsabench.study.proposers.tpe import TpeProposer

__all__ = ["PROPOSERS", "Observation", "Proposer", "make_proposer"]

PROPOSERS: dict[str, Callable[[StudyConfig], Proposer]] = {
    "grid": lambda config: GridProposer(config.space, config.runtime.base, config.proposer.seed),
    "random": lambda config: RandomProposer(config.space, config.runtime.base, config.proposer.seed),
    "tpe": lambda config: TpeProposer(
        config.space, config.runtime.base, config.proposer.seed, config.objective.direction
    ),
}
"""`proposer.kind` of a config → strategy."""


def make_proposer(config: StudyConfig) -> Proposer:
    """Make the strategy of a config for its space and base settings."""
    return PROPOSERS[config.proposer.kind](config)
