"""The legal settings of a space, listed once, with the place of each axis value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt

from dsabench.model.space import AssignmentKey, canonical, completed, is_legal, key_of, legal
from dsabench.model.study import Assignment, Axis, SearchSpace
from dsabench.study.proposers.proposer import Observation

LISTABLE = 50_000
"""Spaces up to this size are listed. Larger ones are sampled."""
INACTIVE = -1

Codes = npt.NDArray[np.int16]
"""(settings, axes): place of the value in the axis, `INACTIVE` where the axis is not active."""


@dataclass(frozen=True)
class LegalSettings:
    """The legal settings of a space, in the order of `legal`."""

    space: SearchSpace
    base: Assignment

    @cached_property
    def listed(self) -> tuple[Assignment, ...] | None:
        """All of them; None if there are more than `LISTABLE`."""
        found = tuple(islice(legal(self.space, self.base), LISTABLE + 1))
        return found if len(found) <= LISTABLE else None

    @cached_property
    def places(self) -> dict[AssignmentKey, int]:
        """Key of a listed setting → its place."""
        return {key_of(one): place for place, one in enumerate(self.listed or ())}

    @cached_property
    def codes(self) -> Codes:
        """The codes of the listed settings."""
        return self.encode(self.listed or ())

    def encode(self, settings: Sequence[Assignment]) -> Codes:
        """The codes of some legal settings."""
        found = np.full((len(settings), len(self.space.axes)), INACTIVE, dtype=np.int16)
        for column, axis in enumerate(self.space.axes):
            places = {_typed(value): place for place, value in enumerate(axis.values)}
            found[:, column] = [places[_typed(one[axis.name])] if axis.name in one else INACTIVE for one in settings]
        return found

    def key(self, settings: Assignment) -> AssignmentKey:
        """The key of a setting that may also have inactive axes."""
        return key_of(canonical(self.space, self.base, settings))

    def seen(self, history: Iterable[Observation]) -> frozenset[AssignmentKey]:
        """The settings of a history, which must not be proposed again."""
        return frozenset(self.key(one.assignment) for one in history)

    def neighbours(self, setting: Assignment) -> Iterator[Assignment]:
        """The legal settings that differ in one axis, and in those that a changed one makes active or inactive."""
        for axis in self.space.axes:
            for value in axis.values:
                changed = completed(self.space, {**self.base, **setting}, {axis.name: value})
                if is_legal(self.space, self.base, changed):
                    yield changed

    def nearest(self, setting: Assignment, columns: Sequence[int]) -> Iterator[Assignment]:
        """For each value of these axes, the listed settings with it that differ least from this one, with what is tied to the axis."""
        codes, own = self.codes, self.encode([setting])[0]
        changes = (codes != own).sum(axis=1)
        for column in columns:
            for place in range(len(self.space.axes[column].values)):
                having = np.flatnonzero(codes[:, column] == place)
                if place != own[column] and len(having) and self.listed is not None:
                    yield self.listed[int(having[np.argmin(changes[having])])]


def _typed(value: object) -> tuple[type, object]:
    """1, 1.0 and True are different values of an axis."""
    return type(value), value


def is_ordered(axis: Axis) -> bool:
    """Whether neighbours of this axis behave alike: numbers with more than two values."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in axis.values)
    return numbers and len(axis.values) > 2
