"""A search for the highest load under which a server meets an SLO."""

from __future__ import annotations

from typing import Self

from pydantic import Field, PositiveFloat, model_validator

from dsabench.model.value import Value

CAPACITY_METRICS = {"request_rate": "capacity_req_s", "max_concurrency": "capacity_concurrency"}
"""Key of a workload that says how heavy it is → what its capacity is called."""


class CapacitySearch(Value):
    """How it is searched: from `lowest` up to the workload's `request_rate`, else to its `max_concurrency`."""

    lowest: PositiveFloat
    """The least load to try."""
    attainment: float = Field(0.9, gt=0.0, le=1.0)
    """Share of the requests that must meet the SLO."""
    probes: int = Field(6, ge=2, le=20)
    """Loads to try at most."""
    start: PositiveFloat | None = None
    """Load to try first; then each 1.5 times the last one, up or down, until one meets the SLO and the next one does not. None tries the
    two ends first.
    """

    def is_met_by(self, probe: LoadProbe) -> bool:
        """Whether enough of the requests of a load met the SLO."""
        return probe.attainment is not None and probe.attainment >= self.attainment


class LoadProbe(Value):
    """One load that was tried."""

    load: PositiveFloat
    """Requests per second, or in flight."""
    attainment: float | None = None
    """Share of the requests that met the SLO; None if the load failed."""
    fault: str | None = None
    stopped: bool = False
    """Whether the load was stopped as soon as it could not meet the SLO any more: `attainment` is the most that it could have reached."""

    @model_validator(mode="after")
    def _one_outcome(self) -> Self:
        if (self.attainment is None) == (self.fault is None):
            raise ValueError("needs either attainment or fault")
        return self

    @property
    def words(self) -> str:
        """Such as `12: 97 %`."""
        if self.attainment is None:
            return f"{self.load:g}: {self.fault}"
        return f"{self.load:g}: {'at most ' if self.stopped else ''}{100 * self.attainment:.0f} %"
