"""Use a boot for all settings that a running server can be changed to, before it is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dsabench.model.space import key_of
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
        if running is not None:
            seen = self.task.seen(history)
            yield from (one for one in self.task.sharing(running) if key_of(one) not in seen)
