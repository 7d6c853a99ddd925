"""What is asked of the server: prompts, lengths, arrivals, concurrency."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from dsabench.model.value import Value


class Slo(Value):
    """What one request must meet, all of it, to count as good; milliseconds. None asks nothing."""

    ttft_ms: PositiveFloat | None = None
    tpot_ms: PositiveFloat | None = None
    """An answer of one token meets it."""
    itl_ms: PositiveFloat | None = None
    """Of every gap between tokens: the largest one decides."""
    e2e_ms: PositiveFloat | None = None
    ttft_from_schedule_ms: PositiveFloat | None = None
    e2e_from_schedule_ms: PositiveFloat | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> Slo:
        if not self.limits_ms:
            raise ValueError("needs at least one limit")
        return self

    @property
    def limits_ms(self) -> dict[str, float]:
        """Latency → limit, of those that are asked."""
        return {name: limit for name, limit in self if limit is not None}


class Workload(Value):
    """One load point. Lengths are tokens."""

    name: str
    dataset: Literal["random", "random-ids"]
    """`random-ids` sends token ids; `random` sends text cut from `dataset_path` (ShareGPT's JSON)."""
    input_len: PositiveInt
    output_len: PositiveInt
    num_prompts: PositiveInt
    range_ratio: float = Field(1.0, ge=0.0, le=1.0)
    """Lengths are uniform on [ratio × length, length]; 1.0 makes every prompt equally long."""
    max_concurrency: PositiveInt | None = None
    """Requests in flight, at most; None sets no limit."""
    request_rate: PositiveFloat | None = None
    """Requests per second of an open loop; None sends as fast as `max_concurrency` lets (closed loop)."""
    arrivals: Literal["constant", "poisson"] = "poisson"
    """Spacing of an open loop's arrivals; without effect when `request_rate` is None."""
    seed: int = Field(1, ge=0)
    warmup_requests: int = Field(1, ge=0)
    """Requests sent before the clock starts, of the same lengths but other content."""
    request_timeout_s: PositiveFloat = 300.0
    dataset_path: str | None = None
    slo: Slo | None = None
    """What counts as a good request: goodput and attainment are reported where it is given."""
