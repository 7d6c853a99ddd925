"""Other harnesses, run as programs with their own interpreter; what they score becomes a record."""

from __future__ import annotations

from dsabench.evals.drivers.nemo_skills import nemo_skills
from dsabench.evals.drivers.program import Driver, DriverName
from dsabench.evals.drivers.sgl_eval import sgl_eval

DRIVERS: dict[DriverName, Driver] = {"nemo-skills": nemo_skills, "sgl-eval": sgl_eval}
"""Name → what it is told to do."""

__all__ = ["DRIVERS", "Driver", "DriverName"]
