"""How long boots, trials and evals take: at the pace of the records, or of assumptions before anything is measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dsabench.config.runtime_kinds import RuntimeKindInfo, runtime_kinds
from dsabench.config.specs import RuntimeConfig, StudyConfig
from dsabench.errors import InputError
from dsabench.model.record import Record
from dsabench.model.study import GateSpec
from dsabench.model.workload import Workload
from dsabench.reporting.numbers import show_count, show_duration
from dsabench.results.study_records import StudyRecords


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Seconds of one boot (start to ready) and of one trial. `measured` is False while these are assumptions."""

    boot_s: float
    trial_s: float
    measured: bool
    compile_s: float = 0.0
    """What the first boot on a machine takes longer; 0 once a boot is measured."""
    evals_s: float = 0.0
    """All evals of the gate, asked of one setting."""
    open_evals: tuple[str, ...] = ()
    """Evals whose number of questions is not known yet, so that `evals_s` lacks them."""

    def of(self, boots: int, trials: int, scored: int = 0) -> float:
        """Seconds for this number of boots and trials, and of settings that answer the evals."""
        compiles = self.compile_s if boots else 0.0
        return self.each(boots, trials) + scored * self.evals_s + compiles

    def each(self, boots: int, trials: int) -> float:
        """Seconds of boots that are not the first, with so many trials in all."""
        return boots * self.boot_s + trials * self.trial_s


def estimate_cost(records: StudyRecords) -> CostEstimate:
    """Estimate from the study's own records. Without records, use assumptions."""
    config, pace = records.config, records.pace
    kind = runtime_kinds()[config.runtime.kind]
    evals = [_eval_s(gate, config, records.scored) for gate in config.gates]
    return CostEstimate(
        boot_s=pace.boot_s or _assumed_boot_s(config.runtime, kind),
        trial_s=pace.trial_s or _assumed_trial_s(config),
        measured=pace.trial_s is not None,
        compile_s=kind.assumed_compile_s if pace.boot_s is None else 0.0,
        evals_s=math.fsum(filter(None, evals)),
        open_evals=tuple(gate.eval for gate, seconds in zip(config.gates, evals, strict=True) if seconds is None),
    )


def _assumed_boot_s(runtime: RuntimeConfig, kind: RuntimeKindInfo) -> float:
    """Random weights are made, not read."""
    is_dummy = runtime.base.get("load_format") == "dummy"
    return kind.assumed_dummy_boot_s if is_dummy and kind.assumed_dummy_boot_s is not None else kind.assumed_boot_s


def _assumed_trial_s(config: StudyConfig) -> float:
    """The assumed seconds of a trial: at least the time until the last request is sent, and for a real model its
    tokens.
    """
    kind = runtime_kinds()[config.runtime.kind]
    assumed = (
        _probes(one) * max(kind.assumed_trial_s, _due_s(one), _passes(one, kind) * _tokens_s(one, kind))
        for one in config.workloads
    )
    return math.fsum(assumed) / len(config.workloads)


def _probes(workload: Workload) -> int:
    return 1 if workload.capacity is None else workload.capacity.probes


def _passes(workload: Workload, kind: RuntimeKindInfo) -> int:
    """How often a load is sent: the rehearsals, and once to measure it."""
    most = kind.passes - 1
    return 1 + (most if workload.rehearsal_passes is None else min(most, workload.rehearsal_passes))


def _tokens_s(workload: Workload, kind: RuntimeKindInfo) -> float:
    """Seconds of one pass at the assumed speeds. Lengths that come from a dataset are unknown and count 0."""
    if kind.stream_tok_s is None or kind.prefill_tok_s is None:
        return 0.0
    streams = min(workload.max_concurrency or workload.num_prompts, workload.num_prompts)
    decoded_s = workload.num_prompts * (workload.output_len or 0) / (streams * kind.stream_tok_s)
    return decoded_s + workload.num_prompts * (workload.input_len or 0) / kind.prefill_tok_s


def _due_s(workload: Workload) -> float:
    if workload.request_rate is None or workload.ramp_to is not None or workload.sessions is not None:
        return 0.0
    return workload.num_prompts / workload.request_rate


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _eval_s(gate: GateSpec, config: StudyConfig, scored: Iterable[Record]) -> float | None:
    """Seconds in which one setting answers an eval; None if the number of its questions is not known before its data is read."""
    # Graders and questions are needed by few studies.
    from dsabench.config.load import load_eval  # noqa: PLC0415
    from dsabench.evals.forecast import answering_s  # noqa: PLC0415

    spec = load_eval(gate.eval)
    if (told := _mean(record.duration_s for record in scored if record.trial.workload.name == spec.name)) is not None:
        return told
    kind = runtime_kinds()[config.runtime.kind]
    try:
        return answering_s(gate, spec, config.runtime.model, kind.stream_tok_s, kind.prefill_tok_s)
    except InputError:  # a gate that can decide nothing is refused before anything boots
        return None


def gate_lines(config: StudyConfig, cost: CostEstimate, settings: int) -> Iterator[str]:
    """When the gate asks, what it can decide where the number of its questions is known before its data is read, and for how long it
    asks.
    """
    if not config.gates:
        return
    from dsabench.config.load import load_eval  # noqa: PLC0415
    from dsabench.evals.compare import in_points  # noqa: PLC0415
    from dsabench.evals.gate_plan import plan_gate, questions_known  # noqa: PLC0415
    from dsabench.evals.plan import Wishes, with_wishes  # noqa: PLC0415

    model = config.runtime.model
    for gate in config.gates:
        spec = with_wishes(load_eval(gate.eval), Wishes(), model)
        questions = None if gate.measure == "agreement" else questions_known(spec)
        unknown = f"{gate.eval}, {gate.measure}, margin {in_points(gate.margin)}"
        decides = unknown if questions is None else plan_gate(gate, spec, questions, model).line()
        finalists = f"in the last boot of each side, of {show_count(gate.finalists, 'finalist')} at most"
        yield f"gate: {decides}; {finalists if gate.ask == 'finalists' else 'in the boot of every setting of the search'}"
    lacks = f"; the estimate lacks {', '.join(cost.open_evals)}" if cost.open_evals else ""
    if cost.evals_s:
        yield f"gate: {show_duration(cost.evals_s)} for the answers of a setting, of {settings} in the estimate{lacks}"
    else:
        yield f"gate: how long its answers take is known after the first setting{lacks}"
