"""Named goals, which expand to an objective with its constraints."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import PositiveFloat, model_validator

from dsabench.model.study import MetricLimit, Objective
from dsabench.model.value import Value

GoalName = Literal["max-throughput", "max-throughput-under-slo", "min-latency"]
GOALS: tuple[GoalName, ...] = get_args(GoalName)
LIMITS = {"ttft_p90_ms": "ttft_ms.p90", "tpot_p90_ms": "tpot_ms.p90", "e2e_p90_ms": "e2e_ms.p90"}
"""Key of a goal → the metric that it limits."""


class Goal(Value):
    """A named goal in place of an objective. `config check --show` prints what it expands to."""

    goal: GoalName
    """`max-throughput` and `max-throughput-under-slo` maximise output tokens per second; the second one needs limits.
    `min-latency` minimises the median time from sending a request to its last token.
    """
    ttft_p90_ms: PositiveFloat | None = None
    """Limit of the 90th percentile of the time to first token."""
    tpot_p90_ms: PositiveFloat | None = None
    """Limit of the 90th percentile of the time per output token."""
    e2e_p90_ms: PositiveFloat | None = None
    """Limit of the 90th percentile of the time from sending to the last token."""

    @model_validator(mode="after")
    def _limits_fit(self) -> Goal:
        if self.goal == "max-throughput" and self._limits:
            raise ValueError("max-throughput has no limits; use max-throughput-under-slo")
        if self.goal == "max-throughput-under-slo" and not self._limits:
            raise ValueError(f"max-throughput-under-slo needs a limit: {', '.join(LIMITS)}")
        return self

    @property
    def _limits(self) -> dict[str, float]:
        given = {metric: getattr(self, key) for key, metric in LIMITS.items()}
        return {metric: limit for metric, limit in given.items() if limit is not None}

    def expanded(self) -> Objective:
        """The objective that the goal stands for."""
        limits = tuple(MetricLimit(metric=metric, max=limit) for metric, limit in self._limits.items())
        if self.goal == "min-latency":
            return Objective(metric="e2e_ms.p50", direction="minimize", constraints=limits)
        return Objective(metric="output_throughput_tok_s", direction="maximize", constraints=limits)
