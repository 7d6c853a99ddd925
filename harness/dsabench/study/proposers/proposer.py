"""What a proposer is: a pure function from the measured settings to the next one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

from dsabench.model.space import AssignmentKey, canonical, key_of
from dsabench.model.study import Assignment, SearchSpace
from dsabench.study.proposers.legal_settings import LegalSettings


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
    """Why a setting has no value: its fault, or `refused`. None without a value: it is under way in another process."""
    seconds: float | None = None
    """What its boot and trials took."""


@dataclass(frozen=True)
class SearchTask:
    """What a strategy is made for."""

    space: SearchSpace
    base: Assignment
    seed: int = 0
    direction: Literal["maximize", "minimize"] = "maximize"
    settings: int | None = None
    """Settings that the budget allows; None without a limit."""

    @cached_property
    def legal(self) -> LegalSettings:
        """The settings to choose from, listed once for all proposals."""
        return LegalSettings(self.space, self.base)

    def seen(self, history: Iterable[Observation]) -> frozenset[AssignmentKey]:
        """The settings of a history, which must not be proposed again."""
        return frozenset(key_of(canonical(self.space, self.base, one.assignment)) for one in history)


class Proposer(Protocol):
    """A strategy without state: the same history gives the same proposal, so a resumed search continues identically."""

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        """A legal assignment that is not in the history; None if there is none left."""
