"""Values for tests, made by the real constructors."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

from dsabench.kernelbench.records import KernelMeasurement, append
from dsabench.model.environment import Environment, Hardware, RuntimeIdentity, fingerprint
from dsabench.model.record import Failed, Measured, Metric, Outcome, Phase, Record, Trial
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.workload import Workload

HARDWARE = Hardware(cpu="Test CPU", cpu_cores=2, memory_mib=1024)
IDENTITY = RuntimeIdentity(kind="reference", version="0.1.0", wheel_hash="ab" * 32, torch="2.13.0", python="3.11.7")
ENVIRONMENT = Environment(
    fingerprint=fingerprint(HARDWARE, IDENTITY),
    hardware=HARDWARE,
    runtime=IDENTITY,
    host="host",
    os="Linux",
    dsabench_version="0.1.0",
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def make_workload(name: str = "short", **changes: object) -> Workload:
    fields: dict[str, object] = {
        "name": name,
        "dataset": "random-ids",
        "input_len": 64,
        "output_len": 8,
        "num_prompts": 16,
        "max_concurrency": 4,
    }
    return Workload.model_validate(fields | changes)


def make_spec(**knobs: bool | float | str) -> RuntimeSpec:
    return RuntimeSpec(kind="reference", model="tiny", knobs=knobs)


def make_record(
    *,
    spec: RuntimeSpec | None = None,
    workload: Workload | None = None,
    occasion: int = 0,
    phase: Phase = "search",
    round_: int = 0,
    boot: str | None = None,
    outcome: Outcome | None = None,
    minute: int = 0,
    value: float = 100.0,
) -> Record:
    trial = Trial(runtime=spec or make_spec(), workload=workload or make_workload())
    return Record(
        id=trial.id,
        occasion=occasion,
        boot=boot or str(uuid.uuid4()),
        study="test",
        round=round_,
        phase=phase,
        trial=trial,
        environment=ENVIRONMENT,
        started_at=START + timedelta(minutes=minute),
        duration_s=1.0,
        boot_s=2.0,
        outcome=outcome or Measured(metrics={"output_throughput_tok_s": Metric(value=value, n=16)}),
    )


def make_failure(*, transient: bool = False) -> Failed:
    return Failed(stage="boot", fault="exited", message="it went away", log_tail="last line", transient=transient)


def write_kernel_times(
    folder: Path, environment: Environment, times: Mapping[str, Callable[[int, int, int], float]]
) -> None:
    """A journal of kernel times at the widths of the reference model `tiny`: `OPERATOR CANDIDATE DTYPE` → µs of batch, new and KV tokens."""
    shapes = [(1, new, kv) for new, kv in product((16, 64, 256), (16, 64, 256, 1024)) if kv >= new]
    shapes += [(batch, 1, kv) for batch, kv in product((1, 2, 4, 8), (32, 128, 512))]
    for (kernel, us), (batch, new, kv) in product(times.items(), shapes):
        operator, candidate, dtype = kernel.split()
        measured = KernelMeasurement(
            operator=operator,
            candidate=candidate,
            dtype=dtype,
            shape_id=f"reftiny-h4-b{batch}-q{new}-kv{kv}",
            status="ok",
            median_us=us(batch, new, kv),
            ceiling_tb_s=0.01,
            ceiling_tflop_s=0.1,
            seed=0,
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            environment=environment,
        )
        append(folder, measured)
