"""A published serving benchmark: what was run, on what, and every figure of the page."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from dsabench.model.value import FrozenMap, KnobValue, Value

Figure = Annotated[float, Field(ge=0)] | None


class PublishedFigures(Value):
    """Figures with the names of bench_serving's JSONL (it only prints `max_itl_ms`). None was not published."""

    completed: Figure = None
    duration: Figure = None
    total_input_tokens: Figure = None
    total_output_tokens: Figure = None
    total_output_tokens_retokenized: Figure = None
    request_throughput: Figure = None
    input_throughput: Figure = None
    output_throughput: Figure = None
    max_output_tokens_per_s: Figure = None
    max_concurrent_requests: Figure = None
    total_throughput: Figure = None
    concurrency: Figure = None
    accept_length: Figure = None
    mean_e2e_latency_ms: Figure = None
    median_e2e_latency_ms: Figure = None
    p90_e2e_latency_ms: Figure = None
    p99_e2e_latency_ms: Figure = None
    mean_ttft_ms: Figure = None
    median_ttft_ms: Figure = None
    p99_ttft_ms: Figure = None
    mean_tpot_ms: Figure = None
    median_tpot_ms: Figure = None
    p99_tpot_ms: Figure = None
    mean_itl_ms: Figure = None
    median_itl_ms: Figure = None
    p95_itl_ms: Figure = None
    p99_itl_ms: Figure = None
    max_itl_ms: Figure = None

    @model_validator(mode="after")
    def _some_figure(self) -> PublishedFigures:
        if not self.figures:
            raise ValueError("needs at least one figure")
        return self

    @property
    def figures(self) -> dict[str, float]:
        """The figures that were published."""
        return {name: value for name, value in self if value is not None}


class PublishedHardware(Value):
    """The hardware of the run."""

    accelerator: str
    """`B200`, `H800`, …"""
    count: PositiveInt
    """Accelerators of all nodes together."""
    nodes: PositiveInt = 1


class PublishedServer(Value):
    """The server of the run."""

    version: str
    """Version of sglang."""
    model: str
    command: str
    """The command as published, in one line."""
    env: FrozenMap[str] = Field(default_factory=dict)
    settings: FrozenMap[KnobValue] = Field(default_factory=dict)
    """Settings of the command by the names of /server_info, including parallel sizes and drafts that it leaves at 1 or
    off.
    """


class PublishedLoad(Value):
    """The actual load, which the published command does not always tell. None is unknown."""

    dataset: str | None = None
    input_len: PositiveInt | None = None
    """Longest prompt of a generated dataset; None if the dataset has its own lengths."""
    output_len: PositiveInt | None = None
    range_ratio: float | None = Field(None, ge=0, le=1)
    num_prompts: PositiveInt | None = None
    max_concurrency: PositiveInt | None = None
    request_rate: PositiveFloat | Literal["inf"] | None = None
    seed: int | None = Field(None, ge=0)


class PublishedRun(Value):
    """One published run: `sweeps/published/NAME.yaml`."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    source: str
    """Page and section."""
    hardware: PublishedHardware
    runtime: PublishedServer
    command: str | None = None
    """The command of the benchmark as published, in one line; None if there is none."""
    load: PublishedLoad
    printed: PublishedFigures
    """Every figure of the page."""
    notes: tuple[str, ...] = ()
    """Notes for readers, such as contradictions between command and figures."""
