"""What a proposer is: a pure function from the measured settings to the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dsabench.model.study import Assignment


@dataclass(frozen=True, slots=True)
class Observation:
    """One setting that was measured, or failed."""

    assignment: Assignment
    """Values of axes. Inactive axes may be present and are ignored."""
    value: float | None
    """The objective; None if the setting failed."""
    violation: float = 0.0
    """Sum of the relative excess over all constraints. Above 0 the setting is infeasible."""


class Proposer(Protocol):
    """A strategy without state: the same history gives the same proposal, so a resumed search continues identically."""

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        """A legal assignment that is not in the history; None if there is none left."""
