"""The best setting of a study per workload: whose accuracy is allowed, and how sure it is that it is the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from dsabench.config.specs import StudyConfig
from dsabench.emit.fit import gates_that_count, why_not_emitted
from dsabench.errors import InputError
from dsabench.evals.gate import recorded_gate
from dsabench.model.numerics import changed_numerics
from dsabench.model.record import Measured, Record, Trial
from dsabench.model.runtime import RuntimeSpec, labels_of
from dsabench.model.tuned_table import GateEvidence
from dsabench.model.verdict import Verdict
from dsabench.results.ablation import number_of_changes, tied_with_first
from dsabench.results.scores import judge_confirmed, judged_metrics, score_setting
from dsabench.results.study_records import measured_default


@dataclass(frozen=True, slots=True)
class Study:
    """The records of a config, and what decides whether its settings may be a default."""

    config: StudyConfig
    folder: Path
    records: tuple[Record, ...]
    """Those of the last environment, evals among them; of its last round that confirmed something, where one did."""
    default: RuntimeSpec
    index_topk: int | None
    allow_simulated: bool

    @property
    def served(self) -> list[Record]:
        """Its load tests that gave numbers, in the order written."""
        workloads = self.config.recorded_workloads
        of_study = [r for r in self.records if isinstance(r.trial, Trial) and r.trial.workload in workloads]
        return [record for record in of_study if isinstance(record.outcome, Measured)]


@dataclass(frozen=True, slots=True)
class Contender:
    """A setting under one workload."""

    spec: RuntimeSpec
    value: float
    """Median of the objective over its boots."""
    boots: int
    is_confirmed: bool
    """Else it is what the search measured, by which it was picked."""
    why_not: str | None = None
    """Why it is no default; None where it may be one."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best setting of one workload that may be a default."""

    workload: str
    default: RuntimeSpec
    chosen: Contender
    left_out: tuple[Contender, ...]
    """Better ones that may not."""
    verdicts: tuple[Verdict, ...]
    """The objective against the default's, a workload each; empty where it is the default, or nothing was confirmed."""
    gates: tuple[GateEvidence, ...]


def study_of(
    config: StudyConfig, folder: Path, records: Sequence[Record], index_topk: int | None, *, allow_simulated: bool
) -> Study:
    """The records that count.

    Raises:
        InputError: no load test of the config was measured.

    """
    own = tuple(record for record in records if record.study == config.name)
    study = Study(config, folder, own, config.default, index_topk, allow_simulated)
    if not study.served:
        raise InputError(f"{folder}: no load test of {config.name}, as its config is now, was measured")
    last = study.served[-1].environment.fingerprint
    here = tuple(record for record in own if record.environment.fingerprint == last)
    rounds = {record.round for record in here}
    confirmed = {record.round for record in here if record.phase == "confirm"}
    kept = tuple(record for record in here if record.round in ({max(confirmed)} if confirmed else rounds))
    default = measured_default(config, [record.trial.runtime for record in kept])
    return replace(study, records=kept, default=config.default if default is None else default)


def best_settings(study: Study) -> list[Best]:
    """Per workload the feasible setting with the best value that may be a default; of a tie the one nearest to the default.

    Where settings were confirmed, only those compete: a search's winner is flattered by having been picked. Where none of
    them but the default may be one, the study has no best setting to give.

    Raises:
        InputError: nothing of a workload is inside the constraints, or nothing but the default may be one.

    """
    names = dict.fromkeys(record.trial.workload.name for record in study.served)
    return [_best_of(study, name) for name in names]


def _best_of(study: Study, workload: str) -> Best:
    everything = _contenders(study, workload)
    found = [one for one in everything if one.is_confirmed] or everything
    if not found:
        raise InputError(f"{workload}: no measured setting is inside the constraints")
    allowed = next((one for one in found if one.why_not is None), None)
    left_out = found if allowed is None else found[: found.index(allowed)]
    if allowed is not None and allowed.spec != study.default:
        may = [one for one in found if one.why_not is None and one.spec != study.default]
        tied = tied_with_first(may, lambda one: one.value)
        allowed = min(tied, key=lambda one: number_of_changes(study.config, one.spec))
    if allowed is None or (left_out and all(one.why_not or one.spec == study.default for one in found)):
        raise InputError(_refusal(study, workload, left_out[0], everything))
    is_default = allowed.spec == study.default
    verdicts = () if is_default else against_default(study.config, study.served, study.default, allowed.spec)
    return Best(workload, study.default, allowed, tuple(left_out), verdicts, _gates(study, allowed.spec))


def _contenders(study: Study, workload: str) -> list[Contender]:
    """Every feasible setting, the best first; one that was confirmed by its confirmation alone."""
    grouped: dict[str, list[Record]] = {}
    for record in study.served:
        if record.trial.workload.name == workload:
            grouped.setdefault(record.trial.runtime.id, []).append(record)
    objective, found = study.config.objective, list[Contender]()
    for records in grouped.values():
        confirmed = [record for record in records if record.phase == "confirm"]
        scores = [score_setting(objective, {workload: [record]}) for record in confirmed or records]
        values = [one.value for one in scores if one.value is not None]
        if values and not any(one.violation for one in scores):
            spec = records[0].trial.runtime
            found.append(Contender(spec, median(values), len(values), bool(confirmed), _why_not(study, spec)))
    return sorted(found, key=lambda one: one.value, reverse=objective.direction == "maximize")


def _why_not(study: Study, spec: RuntimeSpec) -> str | None:
    default = study.default
    if spec == default:
        return None
    topk, simulated = study.index_topk, study.allow_simulated
    return why_not_emitted(spec, default, _gates(study, spec), index_topk=topk, allow_simulated=simulated)


def _gates(study: Study, spec: RuntimeSpec) -> tuple[GateEvidence, ...]:
    gates, default = study.config.gates, study.default
    if not changed_numerics(default, spec):
        return ()
    verdicts = [recorded_gate(gate, study.folder, study.records, default, spec) for gate in gates]
    return gates_that_count(gates, verdicts, labels_of(spec))


def _refusal(study: Study, workload: str, best: Contender, everything: Sequence[Contender]) -> str:
    """The reason, and the way on."""
    said = f"{workload}: the best setting ({best.spec.changes(study.default)}): {best.why_not}."
    default = next((i for i, one in enumerate(everything) if one.spec == study.default), len(everything))
    exact = next((one for one in everything[:default] if one.why_not is None), None)
    way = "" if study.config.gates else " A gate in the config, on real weights, would prove it (docs/evals.md)."
    if exact is None:
        return f"{said}{way} Nothing else was measured that beats the default and may be one"
    boots = f"{exact.boots} boot{'s' if exact.boots > 1 else ''}"
    return (
        f"{said}{way} The best that may be one was not confirmed ({exact.spec.changes(study.default)}, "
        f"{boots}): a study without what is refused confirms it"
    )


def against_default(
    config: StudyConfig, records: Sequence[Record], default: RuntimeSpec, best: RuntimeSpec
) -> tuple[Verdict, ...]:
    """The objective of a confirmed setting against the default, as the sweep judges it: from the boots that took turns."""
    sides = [_confirmed(records, spec) for spec in (default, best)]
    if not all(sides):
        return ()
    found = judge_confirmed(config, sides[0], sides[1], judged_metrics(config.objective))
    return tuple(one for one in found.verdicts if one.metric == config.objective.metric)


def _confirmed(records: Sequence[Record], spec: RuntimeSpec) -> dict[str, tuple[Record, ...]]:
    """By workload, in the order measured."""
    found: dict[str, tuple[Record, ...]] = {}
    for record in sorted(records, key=lambda one: one.started_at):
        if record.phase == "confirm" and record.trial.runtime == spec:
            name = record.trial.workload.name
            found[name] = (*found.get(name, ()), record)
    return found
