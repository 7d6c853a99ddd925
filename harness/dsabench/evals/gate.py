"""The gate of a sweep: a finalist and the default answer the same eval, and the finalist must not be less accurate.

Both answer on a server that the confirmation booted and has measured, so a gate costs no boot.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsabench.config.load import load_eval
from dsabench.evals.agreement import compare_agreement
from dsabench.evals.compare import ComparedEval, compare_evals
from dsabench.evals.sample_log import read_samples
from dsabench.model.record import EvalTrial, Record, Scored
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import GateSpec
from dsabench.model.verdict import Verdict


def recorded_gate(
    gate: GateSpec, folder: Path, records: Sequence[Record], default: RuntimeSpec, best: RuntimeSpec
) -> Verdict:
    """What a gate's records say, without its questions and without a server; undecided where a side has no score.

    Raises:
        InputError: no such eval, or the samples of a score are gone.

    """
    eval_ = load_eval(gate.eval)
    scored = {
        record.trial.runtime.id: record
        for record in records
        if record.phase == "gate"
        and isinstance(record.outcome, Scored)
        and isinstance(record.trial, EvalTrial)
        and record.trial.workload.harness_id == eval_.harness_id
        and gate.repeat in (None, record.trial.workload.repeat)
    }
    for name, spec in (("default", default), ("best", best)):
        if spec.id not in scored:
            return undecided(gate, eval_.name, f"the {name} setting is not scored yet")
    return compare_scored(gate, folder, scored[default.id], scored[best.id])


def compare_scored(gate: GateSpec, folder: Path, default: Record, best: Record) -> Verdict:
    """Both scores by their samples, which lie in the journal's folder."""
    sides = []
    for name, record in (("default", default), ("best", best)):
        assert isinstance(record.outcome, Scored)
        assert record.outcome.samples is not None
        samples = read_samples(folder / record.outcome.samples)
        sides.append(ComparedEval(name, record.trial.workload.name, samples, (f"{record.id}:{record.occasion}",)))
    compare = compare_agreement if gate.measure == "agreement" else compare_evals
    return compare(sides[0], sides[1], gate.margin)


def undecided(gate: GateSpec, eval_: str, reason: str) -> Verdict:
    """The verdict where a side has no score, which is not a pass."""
    return Verdict(
        metric=gate.measure,
        workload=eval_,
        unit="points",
        verdict="inconclusive",
        n_base=0,
        n_candidate=0,
        reason=reason,
    )
