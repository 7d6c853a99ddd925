"""What came out of a trial. The kind decides which fields exist."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsabench.model.value import FrozenMap, Value

Stage = Literal["plan", "boot", "warmup", "load", "summarise", "store", "stop"]
"""`plan`: the setting was refused before a boot was spent on it."""

FaultKind = Literal[
    "boot_timeout",
    "exited",
    "killed",
    "illegal_config",
    "bad_arguments",
    "missing_file",
    "out_of_memory",
    "weights_out_of_memory",
    "kv_pool_out_of_memory",
    "graph_out_of_memory",
    "nccl_timeout",
    "watchdog",
    "nan",
    "gpu_error",
    "jit_compile",
    "port_in_use",
    "unreachable",
    "bad_response",
    "request_errors",
    "request_timeout",
    "client_saturated",
    "server_restarted",
    "disk_full",
    "not_gone",
    "internal",
]

SERVER_LOST: frozenset[FaultKind] = frozenset(
    {
        *("exited", "killed", "unreachable", "out_of_memory", "weights_out_of_memory", "kv_pool_out_of_memory"),
        *("graph_out_of_memory", "nccl_timeout", "watchdog", "nan", "gpu_error", "jit_compile"),
    }
)
"""Faults after which the server cannot be measured any more."""


class Metric(Value):
    """One number with the count of observations behind it and, where it has one, its 95 % interval."""

    value: float
    n: int
    ci_low: float | None = None
    ci_high: float | None = None


class Measured(Value):
    """A load test that ran to its end."""

    kind: Literal["measured"] = "measured"
    metrics: FrozenMap[Metric]
    """Name → metric. Names carry their unit: `ttft_ms.p50`, `output_throughput_tok_s`, `accept_length.mean`."""
    samples: str | None = None
    """Parquet of the requests, relative to the journal's folder."""
    warnings: tuple[str, ...] = ()


class Scored(Value):
    """An eval that ran to its end."""

    kind: Literal["scored"] = "scored"
    metrics: FrozenMap[Metric]
    samples: str | None = None
    warnings: tuple[str, ...] = ()


class Failed(Value):
    """A trial that gave no number. `fault` is the class of the failure, `stage` where it happened."""

    kind: Literal["failed"] = "failed"
    stage: Stage
    fault: FaultKind
    message: str
    log_tail: str = ""
    transient: bool = False
    """True where trying again may help: it is tried once more, as a new occasion."""


Outcome = Annotated[Measured | Scored | Failed, Field(discriminator="kind")]
