"""What one GPU's slices predict of the deployments that they are cut from, held against the deployments themselves.

A group's rank gets 1 / groups of the load, so a deployment's rates (tok/s, req/s) are predicted as groups × the rank's;
all ranks of a group work at the same tokens, so its times are predicted as the rank's own.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dsabench.errors import InputError
from dsabench.model.metrics import METRICS
from dsabench.model.record import Measured, Record, Trial
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.workload import Workload
from dsabench.reporting.comparison import Side
from dsabench.runtimes.sglang.rank import load_of_rank, shape_of, stands_for, strategy_of
from dsabench.runtimes.sglang.slice import Shape
from dsabench.stats.compare import BootValue, judge_alone

FORMULA = {
    "rates": "groups of the attention × the rank's (dpN: N ×; tpN: 1 ×)",
    "times": "the rank's own",
    "load": "the rank gets the deployment's prompts, concurrency and rate ÷ groups",
    "error": "predicted ÷ measured − 1",
}
PREDICTED_METRICS = ("total_throughput_tok_s", "output_throughput_tok_s", "ttft_ms.p50", "tpot_ms.p50")


@dataclass(frozen=True, slots=True)
class Deployment:
    """One measured setting of several GPUs."""

    name: str
    """As in `dp2,ep2,mtp`."""
    spread: str
    """The name without its settings: `dp2,ep2`."""
    shape: Shape
    spec: RuntimeSpec


@dataclass(frozen=True, slots=True)
class Prediction:
    """One metric of one deployment under one load. Values are geometric means."""

    deployment: Deployment
    slice_model: str
    workload: str
    metric: str
    factor: int
    predicted: float
    measured: float
    error: float
    """Predicted ÷ measured − 1."""
    interval: tuple[float, float] | None
    """95 % interval of the error, the boot as unit; None from a single boot on either side."""
    boots: tuple[int, int]
    """Of the deployment, of the slice."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """All of them, and what nothing could be said of."""

    held: tuple[Prediction, ...]
    unpredicted: tuple[str, ...] = field(default=())
    """Measured deployments and loads for which no slice was measured."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """A serving trial with the records that have numbers."""

    spec: RuntimeSpec
    workload: Workload
    records: list[Record]

    def values(self, metric: str, factor: int) -> list[BootValue]:
        """Times `factor`, one of each record that has the metric."""
        return [
            BootValue(record.boot, factor * record.outcome.metrics[metric].value)
            for record in self.records
            if isinstance(record.outcome, Measured) and metric in record.outcome.metrics
        ]


def is_rate(metric: str) -> bool:
    """Whether a metric counts per second, so that the groups' add up."""
    return METRICS[metric].unit.endswith("/s")


def predict(measured: Side, slices: Side, metrics: Sequence[str], *, across: bool = False) -> Predictions:
    """Hold every measured deployment against its slice.

    Raises:
        InputError: no deployment, or no slice of one, was measured, or not with the same runtime on the same GPUs.

    """
    if not across:
        _check_environments(measured, slices)
    of_whole, of_rank = _measured(measured.records), _measured(slices.records)
    names = _deployments({one.spec.id: one.spec for one in of_whole})
    if not names:
        raise InputError(
            f"{measured.name} has no measured deployment of several GPUs that a slice can be cut from; its results are "
            "named first, those of the slices second"
        )
    held: list[Prediction] = []
    missing: list[str] = []
    for whole in of_whole:
        deployment = names.get(whole.spec.id)
        if deployment is None:
            continue
        rank = _rank_of(deployment, whole.workload, of_rank)
        if rank is None:
            missing.append(f"{deployment.name}: {whole.workload.name}")
            continue
        each = (_hold(deployment, whole, rank, metric) for metric in metrics)
        held += [prediction for prediction in each if prediction is not None]
    if not held:
        raise InputError(
            f"{slices.name} has no slice of a deployment in {measured.name}: it takes the model that `dsabench slice` "
            "cuts for it, the settings of one rank, and the load divided by the groups"
        )
    return Predictions(tuple(held), tuple(missing))


def _measured(records: Iterable[Record]) -> list[_Measured]:
    """Per serving trial, in the order first measured."""
    found: dict[str, _Measured] = {}
    for record in sorted(records, key=lambda record: record.started_at):
        trial = record.trial
        if isinstance(record.outcome, Measured) and isinstance(trial, Trial):
            found.setdefault(record.id, _Measured(trial.runtime, trial.workload, [])).records.append(record)
    return list(found.values())


def _deployments(specs: Mapping[str, RuntimeSpec]) -> dict[str, Deployment]:
    """Spec id → deployment; settings that vary between those of one spread are part of its name."""
    shapes = {id_: shape for id_, spec in specs.items() if (shape := shape_of(spec)) is not None and shape.gpus > 1}
    found = {}
    for id_, shape in shapes.items():
        spread = strategy_of(shape)
        kin = [specs[other] for other, its in shapes.items() if its == shape]
        words = [spread, *(["mtp"] if shape.mtp else []), *_varying(specs[id_], kin)]
        found[id_] = Deployment(",".join(words), spread, shape, specs[id_])
    return found


def _varying(spec: RuntimeSpec, kin: Sequence[RuntimeSpec]) -> list[str]:
    names = dict.fromkeys(name for one in kin for name in one.knobs)
    varying = [name for name in names if len({one.knobs.get(name) for one in kin}) > 1]
    return [f"{name}={spec.knobs[name]}" for name in varying if name in spec.knobs]


def _rank_of(deployment: Deployment, workload: Workload, ranks: Sequence[_Measured]) -> _Measured | None:
    load = load_of_rank(workload, deployment.shape.dp)
    fits = (
        rank for rank in ranks if rank.workload == load and stands_for(rank.spec, deployment.spec, deployment.shape)
    )
    return next(fits, None)


def _hold(deployment: Deployment, whole: _Measured, rank: _Measured, metric: str) -> Prediction | None:
    """None where a side lacks the metric, or has no positive value of it."""
    factor = deployment.shape.dp if is_rate(metric) else 1
    base, candidate = whole.values(metric, 1), rank.values(metric, factor)
    if not base or not candidate or min(one.value for one in (*base, *candidate)) <= 0:
        return None
    direction = METRICS[metric].direction
    verdict = judge_alone(metric, whole.workload.name, base, candidate, direction=direction, paired=False)
    measured, predicted = (statistics.geometric_mean([one.value for one in side]) for side in (base, candidate))
    bounded = verdict.ci_low is not None and verdict.ci_high is not None
    return Prediction(
        deployment=deployment,
        slice_model=rank.spec.model,
        workload=whole.workload.name,
        metric=metric,
        factor=factor,
        predicted=predicted,
        measured=measured,
        error=predicted / measured - 1,
        interval=(verdict.ci_low, verdict.ci_high) if bounded else None,  # type: ignore[arg-type]
        boots=(verdict.n_base, verdict.n_candidate),
    )


def _check_environments(measured: Side, slices: Side) -> None:
    """The same runtime on the same kind of GPU; how many there are is what differs."""
    of_runtime = {record.environment.runtime.model_dump_json() for s in (measured, slices) for record in s.records}
    gpus = {
        (hardware.driver, *sorted({(gpu.name, gpu.memory_mib) for gpu in hardware.gpus}))
        for side in (measured, slices)
        for record in side.records
        for hardware in (record.environment.hardware,)
    }
    differing = [name for name, found in (("runtime", of_runtime), ("GPUs", gpus)) if len(found) > 1]
    if differing:
        raise InputError(
            f"{measured.name} and {slices.name} were measured with different {' and '.join(differing)}: "
            "--across-environments compares them all the same"
        )
