"""Use a boot for all settings that a running server can be changed to, before it is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from dsabench.model.space import canonical, is_legal, key_of
from dsabench.model.study import Assignment
from dsabench.study.proposers.proposer import Observation, Proposer, SearchTask


@dataclass(frozen=True)
class SameBootFirst:
    """A strategy that proposes what is left on the running boot, and only then what another strategy chooses."""

    inner: Proposer
    task: SearchTask

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        """See `Proposer.ask`."""
        return next(self._left_on_boot(history), None) or self.inner.ask(history)

    def _left_on_boot(self, history: Sequence[Observation]) -> Iterator[Assignment]:
        running = self.task.running(history)
        if running is None:
            return
        space, base, seen = self.task.space, self.task.base, self.task.seen(history)
        boot, axes = self.task.boot_of(running), [axis for axis in space.axes if axis.name in self.task.reload_free]
        for values in product(*(axis.values for axis in axes)):
            names = (axis.name for axis in axes)
            changed = canonical(space, base, {**running, **dict(zip(names, values, strict=True))})
            same = self.task.boot_of(changed) == boot
            if same and key_of(changed) not in seen and is_legal(space, base, changed):
                yield changed
