"""Strategies that choose the next setting: one file each, found through `PROPOSERS`."""

from __future__ import annotations

from collections.abc import Callable

from dsabench.config.specs import StudyConfig
from dsabench.search.proposers.grid import Grid
from dsabench.search.proposers.protocol import Observation, Proposer
from dsabench.search.proposers.tpe import Tpe
from dsabench.search.proposers.uniform import Uniform

__all__ = ["PROPOSERS", "Observation", "Proposer", "make_proposer"]

PROPOSERS: dict[str, Callable[[StudyConfig], Proposer]] = {
    "grid": lambda config: Grid(config.space, config.runtime.base, config.proposer.seed),
    "random": lambda config: Uniform(config.space, config.runtime.base, config.proposer.seed),
    "tpe": lambda config: Tpe(config.space, config.runtime.base, config.proposer.seed, config.objective.direction),
}
"""`proposer.kind` of a config → strategy."""


def make_proposer(config: StudyConfig) -> Proposer:
    """The strategy that a config asks for, over its space and the base it starts from."""
    return PROPOSERS[config.proposer.kind](config)
