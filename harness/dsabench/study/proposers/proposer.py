"""What a proposer is: a pure function from what was measured to what to measure next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dsabench.model.study import Assignment


@dataclass(frozen=True, slots=True)
class Observation:
    """One setting that was measured, or failed."""

    assignment: Assignment
    """Values of axes. Those of inactive ones may stand in it; they are passed over."""
    value: float | None
    """The objective; None where the setting failed."""
    violation: float = 0.0
    """Sum of the relative excess over the constraints; above 0 the setting is infeasible."""


class Proposer(Protocol):
    """A strategy. It keeps no state: the same history gives the same proposal, so a resumed search goes on alike."""

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        """A legal assignment that is not in the history; None when there is none left."""
