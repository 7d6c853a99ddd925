"""A serving benchmark that somebody printed: what was run, on what, and every figure, as they stand on the page."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from dsabench.model.value import FrozenMap, KnobValue, Value

Figure = Annotated[float, Field(ge=0)] | None


class PublishedFigures(Value):
    """Figures under bench_serving's names, as its JSONL has them (`max_itl_ms` it prints only). None is not printed."""

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
        """Those that are printed."""
        return {name: value for name, value in self if value is not None}


class PublishedHardware(Value):
    """What it ran on."""

    accelerator: str
    """`B200`, `H800`, …"""
    count: PositiveInt
    """Accelerators, of all nodes together."""
    nodes: PositiveInt = 1


class PublishedServer(Value):
    """The server."""

    version: str
    """sglang's."""
    model: str
    command: str
    """As printed, in one line."""
    env: FrozenMap[str] = Field(default_factory=dict)
    settings: FrozenMap[KnobValue] = Field(default_factory=dict)
    """What the command sets, and which of the parallel sizes and drafts it leaves off, under the names of /server_info."""


class PublishedLoad(Value):
    """The load as it really was, which the printed command does not always say. None is not known."""

    dataset: str | None = None
    input_len: PositiveInt | None = None
    """Longest prompt of a drawn dataset; None where the dataset brings its own lengths."""
    output_len: PositiveInt | None = None
    range_ratio: float | None = Field(None, ge=0, le=1)
    num_prompts: PositiveInt | None = None
    max_concurrency: PositiveInt | None = None
    request_rate: PositiveFloat | Literal["inf"] | None = None
    seed: int | None = Field(None, ge=0)


class PublishedRun(Value):
    """`sweeps/published/NAME.yaml`: one printed run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    source: str
    """Page and section."""
    hardware: PublishedHardware
    runtime: PublishedServer
    command: str | None = None
    """The benchmark's command as printed, in one line; None where none is."""
    load: PublishedLoad
    printed: PublishedFigures
    """Every figure on the page."""
    notes: tuple[str, ...] = ()
    """What a reader should know: where the command and the figures do not agree, what follows from what."""
