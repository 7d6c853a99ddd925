"""What is asked of the server: prompts, lengths, arrivals, concurrency."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from dsabench.model.value import Value


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
