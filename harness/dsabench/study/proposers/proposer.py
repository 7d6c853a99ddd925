"""What a proposer is: a pure function from the measured settings to the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product, takewhile
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from dsabench.model.space import AssignmentKey, boot_key, canonical, is_legal, key_of
from dsabench.model.study import Assignment, SearchSpace
from dsabench.study.proposers.legal_settings import LegalSettings

REFUSED = "refused"
"""The fault of a setting that was not booted, because the rules refuse it."""
ENOUGH_EARLIER = 4
"""Settings that were known before a study from which something is expected of others."""
PLANNED = "planned"
"""In place of a fault: a plan goes on as if the setting was measured."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One setting that was measured, or failed."""

    assignment: Assignment
    """Values of axes. Inactive axes may be present and are ignored."""
    value: float | None
    """The objective; None if the setting failed."""
    violation: float = 0.0
    """Sum of the relative excess over all constraints. Above 0 the setting is infeasible."""
    fault: str | None = None
    """Why a setting has no value: its fault, `REFUSED` or `PLANNED`. None without a value: it is under way in another process."""
    seconds: float | None = None
    """What its boot and trials took."""
    boot_s: float | None = None
    """What its boot took of that."""
    limits: frozenset[str] = frozenset()
    """What limited the server, such as `kv_cache`."""

    @property
    def is_under_way(self) -> bool:
        """Whether another process measures it."""
        return self.value is None and self.fault is None

    @property
    def failed(self) -> bool:
        """Whether it gave no number."""
        return self.value is None and self.fault not in {None, PLANNED}


@dataclass(frozen=True)
class SearchTask:
    """What a strategy is made for."""

    space: SearchSpace
    base: Assignment
    seed: int = 0
    direction: Literal["maximize", "minimize"] = "maximize"
    settings: int | None = None
    """Settings that the budget allows; None without a limit."""
    reload_free: frozenset[str] = frozenset()
    """Axes whose values a running server changes."""

    @cached_property
    def legal(self) -> LegalSettings:
        """The settings to choose from, listed once for all proposals."""
        return LegalSettings(self.space, self.base)

    def seen(self, history: Sequence[Observation]) -> SeenSettings:
        """The settings of a history, which must not be proposed again. They hold until this is asked of another history."""
        self._seen.follow(history)
        return self._seen

    @cached_property
    def _seen(self) -> SeenSettings:
        return SeenSettings(self)

    def boot_of(self, assignment: Assignment) -> AssignmentKey:
        """Equal for settings that can share a boot, because they differ in values of reload-free axes alone."""
        return boot_key(assignment, self.reload_free)

    def sharing(self, assignment: Assignment) -> Iterator[Assignment]:
        """The legal settings that share a boot with one, itself too if it is legal."""
        boot, axes = self.boot_of(assignment), [axis for axis in self.space.axes if axis.name in self.reload_free]
        for values in product(*(axis.values for axis in axes)):
            names = (axis.name for axis in axes)
            changed = canonical(self.space, self.base, {**assignment, **dict(zip(names, values, strict=True))})
            if self.boot_of(changed) == boot and is_legal(self.space, self.base, changed):
                yield changed

    def running(self, history: Sequence[Observation]) -> Assignment | None:
        """The last setting that was booted; None without reload-free axes, if it failed, or if another process has its boot.

        It is what a server runs with now, or ran with when the search was interrupted: a resumed search continues identically.
        """
        if not self.reload_free:
            return None
        booted = [one for one in history if not one.is_under_way and one.fault != REFUSED]
        if not booted or booted[-1].failed:
            return None
        last = canonical(self.space, self.base, booted[-1].assignment)
        under_way = [one.assignment for one in history if one.is_under_way]
        elsewhere = [self.boot_of(canonical(self.space, self.base, one)) for one in under_way]
        return None if self.boot_of(last) in elsewhere else last


_TAIL = 64
"""The last observations of a history, which usually hold all that changed; it may be more."""


class SeenSettings:
    """The settings of a history that grows: what has not changed is not looked at again."""

    def __init__(self, task: SearchTask) -> None:
        self._task = task
        self._history: list[Observation] = []
        self._keys: dict[int, tuple[Assignment, AssignmentKey]] = {}
        """By the identity of the assignment, which is kept so that no other gets its number."""
        self._times = Counter[AssignmentKey]()
        self._unseen: npt.NDArray[np.bool_] | None = None

    def __contains__(self, key: AssignmentKey) -> bool:
        return self._times[key] > 0

    def __iter__(self) -> Iterator[AssignmentKey]:
        return (key for key, times in self._times.items() if times)

    def follow(self, history: Sequence[Observation]) -> None:
        """Take this one in place of the one before."""
        before, self._history = self._history, list(history)
        same = max(0, len(before) - _TAIL)
        same = same if before[:same] == self._history[:same] else 0
        pairs = zip(before[same:], self._history[same:], strict=False)
        same += sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
        left = [self._key(one.assignment) for one in before[same:]]
        joined = [self._key(one.assignment) for one in self._history[same:]]
        self._times.subtract(left)
        self._times.update(joined)
        for key in {*left, *joined}:
            self._mark(key)

    @property
    def unseen(self) -> npt.NDArray[np.bool_]:
        """(settings,) Which of the listed settings of the task are not among them."""
        if self._unseen is None:
            self._unseen = np.ones(len(self._task.legal.places), dtype=bool)
            for key in self._times:
                self._mark(key)
        return self._unseen

    def _mark(self, key: AssignmentKey) -> None:
        if self._unseen is not None and (place := self._task.legal.places.get(key)) is not None:
            self._unseen[place] = key not in self

    def _key(self, assignment: Assignment) -> AssignmentKey:
        known = self._keys.get(id(assignment))
        if known is None:
            known = assignment, key_of(canonical(self._task.space, self._task.base, assignment))
            self._keys[id(assignment)] = known
        return known[1]


class Proposer(Protocol):
    """A strategy without state: the same history gives the same proposal, so a resumed search continues identically."""

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        """A legal assignment that is not in the history; None if there is none left."""
