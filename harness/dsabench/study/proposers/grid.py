"""`grid`: every legal assignment once, in an order that covers the space even if the search is cut short."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType

from dsabench.model.space import AssignmentKey
from dsabench.model.study import Assignment
from dsabench.model.value import KnobValue
from dsabench.study.proposers.proposer import Observation, SearchTask
from dsabench.study.proposers.random import draw_unseen, generator

Setting = tuple[str, KnobValue | None]

GREEDY = 10_000
"""Each choice looks at every assignment that is left."""


@dataclass(frozen=True, slots=True)
class GridProposer:
    """Propose the assignment that adds the most new values, then the most new pairs of values (a greedy covering array
    of strength two). Ties are broken by a seeded hash.

    Spaces with more than `GREEDY` assignments are visited in seeded random order instead.
    """

    task: SearchTask

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        """The first assignment of the order that is not in the history; None if there is none."""
        legal, known, seed = self.task.legal, self.task.seen(history), self.task.seed
        if legal.listed is None or len(legal.listed) > GREEDY:
            return draw_unseen(self.task, history, generator(seed, len(history)))
        unseen = [key for key in legal.places if key not in known]
        if not unseen:
            return None
        settings = {setting for key in known for setting in self._shown(key)}
        pairs = {pair for key in known for pair in combinations(self._shown(key), 2)}

        def gain(key: AssignmentKey) -> tuple[int, int]:
            shown = self._shown(key)
            return sum(s not in settings for s in shown), sum(p not in pairs for p in combinations(shown, 2))

        gains = [gain(key) for key in unseen]
        best = max(gains)
        tied = (key for key, its in zip(unseen, gains, strict=True) if its == best)
        first: AssignmentKey = min(tied, key=lambda key: _hash(seed, key))
        return MappingProxyType(dict(first))

    def _shown(self, key: AssignmentKey) -> list[Setting]:
        """The values and pairs of an assignment. An inactive axis counts as a value of its own. Otherwise branches
        with few active axes would add less and always come last.
        """
        values = dict(key)
        return [(axis.name, values.get(axis.name)) for axis in self.task.space.axes]


def _hash(seed: int, key: AssignmentKey) -> bytes:
    return hashlib.blake2b(repr((seed, key)).encode(), digest_size=8).digest()
