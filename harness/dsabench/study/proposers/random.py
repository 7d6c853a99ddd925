"""`random`: uniform over the legal assignments that are not measured yet."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dsabench.model.space import is_active, is_forbidden, key_of, legal
from dsabench.model.study import Assignment, SearchSpace
from dsabench.model.value import KnobValue
from dsabench.study.proposers.legal_settings import LegalSettings
from dsabench.study.proposers.proposer import Observation, SearchTask

DRAWS = 5_000


@dataclass(frozen=True, slots=True)
class RandomProposer:
    """Every legal assignment that is not in the history is equally likely."""

    task: SearchTask

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        """Draw with the seed and the length of the history; None if nothing is left."""
        return draw_unseen(self.task, history, generator(self.task.seed, len(history)))


def generator(*seeds: int) -> random.Random:
    """A random generator that depends on every part of the seed."""
    return random.Random(":".join(map(str, seeds)))


def draw_unseen(task: SearchTask, history: Sequence[Observation], rng: random.Random) -> Assignment | None:
    """One legal assignment outside the history, uniformly; None if there is none."""
    space, base, seen = task.space, task.base, task.seen(history)
    if (listed := task.legal.listed) is not None:
        places = np.flatnonzero(seen.unseen)
        return listed[rng.choice(places)] if len(places) else None
    for _ in range(DRAWS):
        drawn = draw(space, base, rng)
        if drawn is not None and key_of(drawn) not in seen:
            return drawn
    # Almost everything is forbidden or seen, so drawing does not find the rest. Take the first one in order.
    return next((assignment for assignment in legal(space, base) if key_of(assignment) not in seen), None)


def draw_some(legal_: LegalSettings, draws: int, rng: random.Random) -> list[Assignment]:
    """Different legal assignments, as many as come of so many draws: of a space too large to list."""
    drawn = (draw(legal_.space, legal_.base, rng) for _ in range(draws))
    return list({key_of(one): one for one in drawn if one is not None}.values())


def draw(space: SearchSpace, base: Assignment, rng: random.Random) -> Assignment | None:
    """One draw by rejection; None if it was rejected.

    Drawing values axis by axis makes assignments with few active axes too likely, by the product of the sizes of
    their inactive axes. Each is therefore kept with the inverse probability, which makes all legal ones equally
    likely.
    """
    settings, chosen, inactive = dict(base), dict[str, KnobValue](), 1.0
    for axis in space.ordered:
        if is_active(space, axis.name, settings):
            chosen[axis.name] = settings[axis.name] = rng.choice(axis.values)
        else:
            inactive *= len(axis.values)
    kept = math.isclose(inactive, 1.0) or rng.random() < 1 / inactive
    return MappingProxyType(chosen) if kept and not is_forbidden(space, settings) else None
