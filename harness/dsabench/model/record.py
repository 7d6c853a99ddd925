"""One line of the journal: what was requested, what ran, on what machine, and the outcome."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from pydantic import AwareDatetime, Field, JsonValue, model_validator

from dsabench.model.bottleneck import Bottleneck
from dsabench.model.capacity import LoadProbe
from dsabench.model.environment import Environment
from dsabench.model.evals import EvalTask
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.value import FrozenMap, Value, canonical_json, digest
from dsabench.model.workload import Workload


class Trial(Value):
    """One load test of one setting. It contains everything to repeat it, except the place."""

    kind: Literal["serve"] = "serve"
    runtime: RuntimeSpec
    workload: Workload

    @cached_property
    def id(self) -> str:
        """sha256 of the canonical JSON, in which a record stores the trial."""
        return digest(canonical_json(self))


class EvalTrial(Value):
    """One eval of one setting."""

    kind: Literal["eval"] = "eval"
    runtime: RuntimeSpec
    workload: EvalTask

    @cached_property
    def id(self) -> str:
        """The same as for `Trial`."""
        return digest(canonical_json(self))


AnyTrial = Annotated[Trial | EvalTrial, Field(discriminator="kind")]


Stage = Literal["plan", "boot", "warmup", "load", "summarise", "store", "stop"]
"""`plan`: the rules refused the setting, so it was not booted."""

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
    "prefill_out_of_memory",
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
        *("graph_out_of_memory", "prefill_out_of_memory", "nccl_timeout", "watchdog", "nan", "gpu_error"),
        "jit_compile",
    }
)
"""After these faults the server cannot be used any more."""


class Metric(Value):
    """A number, its count of observations and, if known, its 95 % interval."""

    value: float
    n: int
    ci_low: float | None = None
    ci_high: float | None = None


class Measured(Value):
    """A completed load test."""

    kind: Literal["measured"] = "measured"
    metrics: FrozenMap[Metric]
    """Name → metric. Names contain their unit: `ttft_ms.p50`, `output_throughput_tok_s`, `accept_length.mean`."""
    samples: str | None = None
    """Parquet file of the requests, relative to the folder of the journal."""
    warnings: tuple[str, ...] = ()
    bottleneck: Bottleneck | None = None
    """What limited the server meanwhile; None where its log was not to be seen."""
    probes: tuple[LoadProbe, ...] | None = None
    """The loads that were tried; None of a workload without `capacity`. Everything else is of the one that was chosen."""


class Scored(Value):
    """A completed eval."""

    kind: Literal["scored"] = "scored"
    metrics: FrozenMap[Metric]
    samples: str | None = None
    warnings: tuple[str, ...] = ()


class Failed(Value):
    """A trial without a number. `fault` is the kind of failure, `stage` is where it happened."""

    kind: Literal["failed"] = "failed"
    stage: Stage
    fault: FaultKind
    message: str
    log_tail: str = ""
    transient: bool = False
    """Whether a retry may succeed. It is retried once, as a new occasion."""


Outcome = Annotated[Measured | Scored | Failed, Field(discriminator="kind")]


SCHEMA_VERSION: Literal[1] = 1
# 1 is the first schema. A later version reads all earlier ones; tests/golden has a journal of each.

Phase = Literal["search", "confirm", "ablate", "gate"]


class RecordKey(NamedTuple):
    """Records with an equal key are the same measurement."""

    trial_id: str
    fingerprint: str
    occasion: int


class Record(Value):
    """One measurement of one trial."""

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str
    """The id of the trial."""
    occasion: int = Field(ge=0)
    """Counts repeats of the trial in this environment: confirmations, `--again`, the retry after a transient fault."""
    boot: str
    """uuid of the server process, the unit of replication. A refused setting had no process."""
    study: str
    round: int = Field(0, ge=0)
    """`--again` starts the next round; a plain run completes the latest one."""
    phase: Phase = "search"
    turn: int | None = Field(None, ge=0)
    """Position in the confirmation or ablation: boots of two settings with the same turn were neighbours. Old versions did not
    record it.
    """
    trial: AnyTrial
    environment: Environment
    started_at: AwareDatetime
    duration_s: float
    boot_s: float | None = None
    """Seconds from start to ready."""
    resolved: FrozenMap[JsonValue] = Field(default_factory=dict)
    """The settings that the runtime reports."""
    labels: tuple[str, ...] = ()
    outcome: Outcome

    @model_validator(mode="after")
    def _id_fits(self) -> Record:
        if self.id != self.trial.id:
            raise ValueError("id is not the trial's")
        return self

    @property
    def samples(self) -> str | None:
        """Name of the file of its samples, relative to the journal's folder; None where it has none."""
        return None if isinstance(self.outcome, Failed) else self.outcome.samples

    @property
    def bottleneck(self) -> Bottleneck | None:
        """What limited the server; None of what is no load test, or where its log was not to be seen."""
        return self.outcome.bottleneck if isinstance(self.outcome, Measured) else None

    @property
    def is_refusal(self) -> bool:
        """Whether the rules refused the setting, so that nothing was booted."""
        return self.outcome.kind == "failed" and self.outcome.stage == "plan"

    @property
    def numbers(self) -> tuple[str, frozenset[tuple[str, float]]] | None:
        """The trial and everything that was measured, which a copy under another boot's name shares; None: not measured."""
        if not isinstance(self.outcome, Measured):
            return None
        return self.id, frozenset((name, metric.value) for name, metric in self.outcome.metrics.items())

    @property
    def key(self) -> RecordKey:
        """(trial id, environment fingerprint, occasion)."""
        return RecordKey(self.id, self.environment.fingerprint, self.occasion)

    @property
    def measurement(self) -> tuple[str, str, Phase, datetime]:
        """(trial id, boot, phase, start): the same in every folder that has the record, where its occasion may differ."""
        return self.id, self.boot, self.phase, self.started_at
