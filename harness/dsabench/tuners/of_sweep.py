"""What a sweep's result says of a default: the curve over one setting, and the evidence of its verdicts and gate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from dsabench.config.specs import StudyConfig
from dsabench.emit.fit import gates_that_count
from dsabench.model.record import Measured, Record, Trial
from dsabench.model.runtime import SIMULATED
from dsabench.model.study_result import StudyResult
from dsabench.model.tuned_table import (
    BufferRule,
    GateEvidence,
    LaunchRule,
    StepsRule,
    TableEvidence,
    ThresholdRule,
    TunedTable,
)
from dsabench.model.value import canonical_json, digest
from dsabench.model.verdict import Verdict
from dsabench.results.ablation import has_gain
from dsabench.tuners.target import target_of

_KINDS: dict[str, Literal["mha_threshold", "hisparse", "mtp", "launch"]] = {
    "threshold": "mha_threshold",
    "buffer": "hisparse",
    "steps": "mtp",
    "launch": "launch",
}


@dataclass(frozen=True, slots=True)
class TunePlan:
    """The study of a tune with its settings in the order that arithmetic expects, and that arithmetic in lines for people."""

    config: StudyConfig
    arithmetic: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One workload under one value of a setting: the objective's median over boots."""

    workload: str
    value: int
    median: float
    boots: int


def curve_of(records: Iterable[Record], knob: str, metric: str) -> list[CurvePoint]:
    """By workload, then by the setting's value, ascending."""
    found: dict[tuple[str, int], list[float]] = {}
    for record in records:
        if not isinstance(record.trial, Trial) or not isinstance(record.outcome, Measured):
            continue
        value, measured = record.trial.runtime.knobs.get(knob), record.outcome.metrics.get(metric)
        if isinstance(value, int) and measured is not None:
            found.setdefault((record.trial.workload.name, value), []).append(measured.value)
    return [CurvePoint(*key, median(values), len(values)) for key, values in sorted(found.items())]


def objective_verdicts(config: StudyConfig, result: StudyResult) -> list[Verdict]:
    """Those of the objective, one a workload."""
    return [verdict for verdict in result.verdicts if verdict.metric == config.objective.metric]


def why_unfinished(config: StudyConfig, result: StudyResult) -> str | None:
    """Why no table may be written yet; None where the confirmation has all the boots that the config asks for.

    How many they are is said before anything is measured. A table from fewer would let whoever runs the study stop where
    the verdict pleases. What the gate found less accurate is decided, whoever comes next.
    """
    if not result.unconfirmed or (result.gate is not None and result.gate.verdict == "worse"):
        return None
    boots = f"{result.unconfirmed} boots" if result.unconfirmed > 1 else "1 boot"
    return f"{boots} of the confirmation missing: a table takes {config.budget.confirm_boots} of every side"


def why_not_better(config: StudyConfig, result: StudyResult) -> str | None:
    """What the verdicts say of a best setting that shows no gain; None where it shows one."""
    verdicts = objective_verdicts(config, result)
    if result.best is not None and verdicts and has_gain(config.objective, verdicts):
        return None
    return in_words(verdicts) or result.stopped or "nothing was confirmed against the default"


def in_words(verdicts: Iterable[Verdict]) -> str:
    """Each with its workload and reason."""
    return "; ".join(f"{one.workload}: {one.verdict}, {one.reason}" for one in verdicts)


def evidence_of(config: StudyConfig, result: StudyResult, conditions: Sequence[str], command: str) -> TableEvidence:
    """Versions, digest of the records, the weakest workload's interval, and the gate."""
    verdicts = objective_verdicts(config, result)
    weakest = min(verdicts, key=lambda one: config.objective.sign * (one.effect or 0.0))
    last = result.records[-1].environment
    packages = {name: version for name, version in (last.runtime.packages or {}).items() if name != "torch-cuda"}
    versions = {last.runtime.kind: last.runtime.version, **packages}
    versions |= {"torch": last.runtime.torch} if last.runtime.torch else {}
    versions |= {"driver": last.hardware.driver} if last.hardware.driver else {}
    simulated = any(SIMULATED in record.labels for record in result.records)
    return TableEvidence(
        label="simulated" if simulated else "measured",
        versions=versions,
        samples_sha256=digest("\n".join(canonical_json(record) for record in result.records)),
        effect=weakest.effect,
        ci_low=weakest.ci_low,
        ci_high=weakest.ci_high,
        metric=config.objective.metric,
        n=weakest.n_candidate,
        gates=gates_of(config, result),
        command=command,
        conditions=(*conditions, *_loads_in_words(config, verdicts, result.records)),
    )


def _loads_in_words(config: StudyConfig, verdicts: Sequence[Verdict], records: Sequence[Record]) -> Iterator[str]:
    """The judged loads; of those whose dataset has lengths of its own, the mean lengths that were sent."""
    loads = {load.name: load for load in config.workloads}
    for load in (loads[verdict.workload] for verdict in verdicts):
        of_load = [one for one in records if isinstance(one.trial, Trial) and one.trial.workload.name == load.name]
        measured = [one.outcome.metrics for one in of_load if isinstance(one.outcome, Measured)]
        requests, tokens_in, tokens_out = (
            sum(metrics[name].value for metrics in measured if name in metrics)
            for name in ("completed", "input_tokens", "output_tokens")
        )
        own = (
            f", on average {tokens_in / requests:,.0f} tokens in and {tokens_out / requests:,.0f} out"
            if requests and load.input_len is None
            else ""
        )
        yield f"workload {load.in_words}{own}"


def gates_of(config: StudyConfig, result: StudyResult) -> tuple[GateEvidence, ...]:
    """The gates of the best setting, where they can mean something."""
    labels = [label for record in result.records for label in record.labels]
    return gates_that_count(config.gates, result.gates, labels)


def device_of(config: StudyConfig, records: Sequence[Record]) -> str:
    """As the runtime names it in a table's key."""
    gpus = records[-1].environment.hardware.gpus if records else ()
    if gpus:
        return gpus[0].name.replace(" ", "_")
    return target_of(config).device or "CPU"


def table_of_sweep(
    rule: ThresholdRule | BufferRule | StepsRule | LaunchRule,
    config: StudyConfig,
    result: StudyResult,
    conditions: Sequence[str],
    command: str,
) -> TunedTable:
    """The rule as a table for the config's model, the cache of the best setting and the device it was measured on.

    Raises:
        InputError: a runtime that has no tables, or a model whose widths are not known here.

    """
    assert result.best is not None, "only what was faster becomes a table"
    knobs, target = result.best.spec.knobs, target_of(config)
    return TunedTable(
        kind=_KINDS[rule.form],
        runtime=target.runtime,
        device=device_of(config, result.records),
        heads_per_rank=target.heads_per_rank,
        index_topk=target.index_topk,
        kv_cache_dtype="fp8_e4m3" if knobs.get("kv_cache_dtype") == "fp8_e4m3" else "bfloat16",
        rule=rule,
        evidence=evidence_of(config, result, conditions, command),
    )
