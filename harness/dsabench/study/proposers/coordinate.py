"""`coordinate`: what people do by hand: one axis after another, from the best setting so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from dsabench.model.space import canonical, completed, key_of
from dsabench.model.study import Assignment, SearchSpace
from dsabench.study.proposers.legal_settings import LegalSettings
from dsabench.study.proposers.proposer import Observation
from dsabench.study.proposers.random import draw_unseen, generator


@dataclass(frozen=True)
class CoordinateProposer:
    """Try every value of one axis at the best setting, go to the best of them, then the next axis. The order of axes is drawn by the
    seed. Where no single change is left, the search goes on at random.
    """

    space: SearchSpace
    base: Assignment
    seed: int = 0
    direction: Literal["maximize", "minimize"] = "maximize"

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        """The next single change of the best setting; None if nothing is left."""
        known = self._legal.seen(history)
        for changed in self._changes(self._best(history)):
            if key_of(changed) not in known:
                return changed
        return draw_unseen(self._legal, known, generator(self.seed, len(history)))

    def _best(self, history: Sequence[Observation]) -> Assignment:
        """The best feasible setting; the default before there is one."""
        measured = [one for one in history if one.value is not None and one.violation == 0.0]
        if measured:
            sign = 1.0 if self.direction == "maximize" else -1.0
            best = max(measured, key=lambda one: sign * (one.value or 0.0))
            return canonical(self.space, self.base, best.assignment)
        return completed(self.space, self.base, {})

    def _changes(self, best: Assignment) -> Iterator[Assignment]:
        """Axis by axis, with what is tied to it."""
        if self._legal.listed is None:
            yield from self._legal.neighbours(best)
            return
        axes = list(range(len(self.space.axes)))
        generator(self.seed).shuffle(axes)
        yield from self._legal.nearest(best, axes)

    @cached_property
    def _legal(self) -> LegalSettings:
        return LegalSettings(self.space, self.base)
