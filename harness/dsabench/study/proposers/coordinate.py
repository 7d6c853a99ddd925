"""`coordinate`: what people do by hand: one axis after another, from the best setting so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsabench.model.space import AssignmentKey, canonical, completed, key_of
from dsabench.model.study import Assignment
from dsabench.study.proposers.proposer import Observation, SearchTask
from dsabench.study.proposers.random import draw_unseen, generator


@dataclass(frozen=True, slots=True)
class CoordinateProposer:
    """Try every value of one axis, keep the best one, go on with the next axis. The order of axes is drawn by the seed.

    Passes over all axes follow until one changes nothing. The rest is drawn at random.
    """

    task: SearchTask

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        """Repeat the descent from the default through what is known, up to the first unknown setting; None if nothing is left."""
        task, known = self.task, self.task.seen(history)
        order = list(range(len(task.space.axes)))
        generator(task.seed).shuffle(order)
        worth = self._worth(history)
        best, before = completed(task.space, task.base, {}), None
        while best != before:
            before = best
            for column in order:
                tried = list(task.legal.neighbours(best, (column,)))
                unknown = next((one for one in tried if key_of(one) not in known), None)
                if unknown is not None:
                    return unknown
                best = max((best, *tried), key=lambda one: worth.get(key_of(one), float("-inf")))
        return draw_unseen(task, history, generator(task.seed, len(history)))

    def _worth(self, history: Sequence[Observation]) -> dict[AssignmentKey, float]:
        """The objective of each feasible setting, so that more is better."""
        sign = 1.0 if self.task.direction == "maximize" else -1.0
        return {
            key_of(canonical(self.task.space, self.task.base, one.assignment)): sign * one.value
            for one in history
            if one.value is not None and one.violation == 0.0
        }
