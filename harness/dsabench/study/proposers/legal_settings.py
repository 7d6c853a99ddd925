"""The legal settings of a space, listed once, with the place of each axis value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt

from dsabench.model.space import AssignmentKey, completed, is_legal, key_of, legal
from dsabench.model.study import Assignment, Axis, SearchSpace

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

    def neighbours(self, setting: Assignment, columns: Iterable[int]) -> Iterator[Assignment]:
        """For each other value of these axes, the legal setting with it that differs least: what is tied to the axis changes too.

        Of a space too large to list, those that differ in one axis alone, and in what that makes active.
        """
        own = self.encode([setting])[0]
        changes = (self.codes != own).sum(axis=1)
        for column in columns:
            axis = self.space.axes[column]
            for place, value in enumerate(axis.values):
                if place == own[column]:
                    continue
                if self.listed is None:
                    changed = completed(self.space, {**self.base, **setting}, {axis.name: value})
                    if is_legal(self.space, self.base, changed):
                        yield changed
                elif len(having := np.flatnonzero(self.codes[:, column] == place)):
                    yield self.listed[int(having[np.argmin(changes[having])])]


def _typed(value: object) -> tuple[type, object]:
    """1, 1.0 and True are different values of an axis."""
    return type(value), value


def is_ordered(axis: Axis) -> bool:
    """Whether neighbours of this axis behave alike: numbers with more than two values."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in axis.values)
    return numbers and len(axis.values) > 2
