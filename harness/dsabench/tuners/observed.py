"""Times of the two sparse prefill kernels at the same batch: from kernel tables, and from servers that differ in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from dsabench.emit.manifest import sha256
from dsabench.errors import InputError
from dsabench.kernelbench.records import shape_of
from dsabench.model.record import Measured, Record, Trial
from dsabench.model.tuned_table import SparseKernel
from dsabench.runtimes.protocol import AttentionShape
from dsabench.tuners.prefill_mix import Step, steps_of

KERNELS: tuple[SparseKernel, SparseKernel] = ("flashmla_sparse", "flashmla_kv")
CANDIDATES: dict[str, dict[SparseKernel, str]] = {
    # what a layer runs for it: the sparse kernel reads bfloat16, so an fp8 cache is dequantised first
    "sglang": {"flashmla_sparse": "flashmla_sparse_dequantise", "flashmla_kv": "flashmla_kv"},
    "reference": {"flashmla_sparse": "torch_flashmla_sparse", "flashmla_kv": "torch_flashmla_kv"},
}
"""Runtime → backend → the candidate of the kernel benchmark that prefills over an fp8 cache."""


def kernel_candidates(target: AttentionShape) -> tuple[str, ...]:
    """The two kernels that a rule chooses between, as the kernel benchmark names them."""
    return tuple(CANDIDATES[target.runtime].values())


_SHAPES_MIN = 5
"""As many as cross-validation has folds; of fewer any rule is right, and their interval has no width."""
_PACKAGES = ("sglang", "sglang-kernel", "sgl-kernel", "flashinfer-python", "torch")


@dataclass(frozen=True, slots=True)
class Observed:
    """One batch under both kernels. `us` is in microseconds, or in any unit common to the two."""

    step: Step
    us: Mapping[SparseKernel, float]
    noise: float
    """Half of a time's 95 % interval, relative; the larger of the two."""
    held_out: bool = False
    source: Literal["kernel", "server"] = "kernel"

    def lost(self, kernel: SparseKernel) -> float:
        """Share of time lost against the faster kernel."""
        return self.us[kernel] / min(self.us.values()) - 1.0


@dataclass(frozen=True, slots=True)
class Observations:
    """What was read, and what it was measured on."""

    points: tuple[Observed, ...]
    device: str
    """As in a table's key."""
    versions: Mapping[str, str]
    sha256: str
    """Of the file."""


def of_kernels(file: Path, target: AttentionShape) -> Observations:
    """The shapes of the target's heads that both kernels were timed at, in the last environment of the table.

    Raises:
        InputError: no such file, too few shapes with both kernels, or one whose times are no times.

    """
    import pyarrow.parquet as pq  # noqa: PLC0415  (a fifth of a second)

    if not file.is_file():
        raise InputError(f"{file}: no such file; dsabench kernels bench sparse_prefill --dtypes fp8 writes it")
    names = CANDIDATES[target.runtime]
    rows = [
        row
        for row in pq.read_table(file).to_pylist()
        if row["operator"] == "sparse_prefill" and row["dtype"] == "fp8" and row["candidate"] in names.values()
    ]
    last = rows[-1]["fingerprint"] if rows else None
    rows = [row for row in rows if row["fingerprint"] == last and is_of_rank(row["shape_id"], target)]
    if (broken := next((row for row in rows if not _is_timed(row)), None)) is not None:
        raise InputError(
            f"{file}: {broken['candidate']} at {broken['shape_id']} has the time {broken['median_us']} µs "
            f"({broken['low_us']} to {broken['high_us']}): measure that shape again"
        )
    points = [point for pair in _by_shape(rows) if (point := _point(pair, names)) is not None]
    seen = sum(not point.held_out for point in points) or len(points)
    if seen < _SHAPES_MIN:
        what = f"{target.heads_per_rank} heads and index_topk {target.index_topk}"
        raise InputError(
            f"{file}: {seen or 'no'} shape{'s' * (seen != 1)} with {what} where both {' and '.join(names.values())} were "
            f"timed with fp8 in the last environment there; a rule takes {_SHAPES_MIN}, held-out ones not counted"
        )
    device = (rows[0]["gpu"] or "CPU").replace(" ", "_")
    packages = dict(part.split("=", 1) for part in (rows[0]["packages"] or "").split(",") if "=" in part)
    versions = {**packages, **({"torch": rows[0]["torch"]} if rows[0]["torch"] else {})}
    kept = {name: version for name, version in versions.items() if name in _PACKAGES}
    return Observations(tuple(points), device, kept, sha256(file.read_bytes()))


def of_servers(records: Sequence[Record], target: AttentionShape) -> list[Observed]:
    """Workloads that were served under both kernels with all other settings equal: time per token, by throughput.

    Only prompts of one length count, and the batch is that of the largest weight.
    """
    throughput: dict[tuple[str, str], dict[str, list[float]]] = {}
    workloads = {}
    for record in records:
        if not isinstance(record.trial, Trial) or not isinstance(record.outcome, Measured):
            continue
        spec, workload = record.trial.runtime, record.trial.workload
        metric = record.outcome.metrics.get("total_throughput_tok_s")
        kernel = spec.knobs.get("prefill_backend")
        if spec.kind != target.runtime or kernel not in KERNELS or metric is None or metric.value <= 0:
            continue
        if spec.knobs.get("kv_cache_dtype") != "fp8_e4m3" or workload.range_ratio < 1:
            continue
        others = sorted((name, str(value)) for name, value in spec.knobs.items() if name != "prefill_backend")
        chunk = spec.knobs.get("chunked_prefill_size")
        key = (f"{workload.model_dump_json()}", str(others))
        workloads[key] = (workload, chunk if isinstance(chunk, int) and chunk > 0 else None)
        throughput.setdefault(key, {}).setdefault(str(kernel), []).append(metric.value)
    points = []
    for key, values in throughput.items():
        steps = steps_of([workloads[key][0]], workloads[key][1])
        if len(values) == len(KERNELS) and steps:
            us = {kernel: 1e6 / median(values[kernel]) for kernel in KERNELS}
            noise = max(_spread(each) for each in values.values())
            points.append(Observed(max(steps, key=lambda step: steps[step]), us, noise, source="server"))
    return points


def _spread(values: Sequence[float]) -> float:
    """Half of the range, relative; a single boot tells nothing of it and counts as 2 %."""
    return (max(values) - min(values)) / 2 / median(values) if len(values) > 1 else 0.02


def _is_timed(row: Mapping[str, Any]) -> bool:
    times = [row[name] for name in ("median_us", "low_us", "high_us")]
    return all(time is not None and math.isfinite(time) for time in times) and row["median_us"] > 0


def is_of_rank(shape_id: str, target: AttentionShape) -> bool:
    """Whether a shape has the heads and index_topk of a rank."""
    shape = shape_of(shape_id)
    return shape.heads == target.heads_per_rank and shape.dimensions.index_topk == target.index_topk


def _by_shape(rows: Iterable[Mapping[str, Any]]) -> Iterable[list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["shape_id"], []).append(row)
    return found.values()


def _point(rows: Sequence[Mapping[str, Any]], names: Mapping[SparseKernel, str]) -> Observed | None:
    by_candidate = {row["candidate"]: row for row in rows}
    if any(candidate not in by_candidate for candidate in names.values()):
        return None
    shape = shape_of(rows[0]["shape_id"])
    chosen = {kernel: by_candidate[candidate] for kernel, candidate in names.items()}
    noise = max((row["high_us"] - row["low_us"]) / 2 / row["median_us"] for row in chosen.values())
    us = {kernel: float(row["median_us"]) for kernel, row in chosen.items()}
    return Observed(Step(shape.total_q, shape.total_kv), us, noise, rows[0]["split"] == "held_out")
