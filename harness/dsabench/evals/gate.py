"""The gate of a sweep: a setting and the default answer the same eval, and the setting must not be less accurate.

Both answer on a server that the study booted and has measured, so a gate costs no boot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from dsabench.config.load import load_eval
from dsabench.evals.agreement import compare_agreement
from dsabench.evals.compare import ComparedEval, compare_evals
from dsabench.evals.sample_log import read_samples
from dsabench.model.evals import EvalSpec
from dsabench.model.record import EvalTrial, Record, Scored
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import GateSpec
from dsabench.model.study_result import AccuracyRefusal
from dsabench.model.verdict import Verdict

_UNPROVEN = 1.0
"""Excess over the margin where nothing decides about it: 100 %."""


def recorded_gate(
    gate: GateSpec, folder: Path, records: Sequence[Record], default: RuntimeSpec, best: RuntimeSpec
) -> Verdict:
    """What a gate's records say, without its questions and without a server; undecided where a side has no score.

    Raises:
        InputError: no such eval, or the samples of a score are gone.

    """
    eval_ = load_eval(gate.eval)
    scored = _scored(gate, eval_, records)
    for name, spec in (("default", default), ("best", best)):
        if spec.id not in scored:
            return undecided(gate, eval_.name, f"the {name} setting is not scored yet")
    return compare_scored(gate, folder, scored[default.id], scored[best.id])


def refused_settings(
    gates: Sequence[GateSpec], folder: Path, records: Sequence[Record], default: RuntimeSpec
) -> dict[str, AccuracyRefusal]:
    """The settings (ids of specs) that answered an eval of these gates and do not pass it.

    Raises:
        InputError: no such eval, or the samples of a score are gone.

    """
    judged: dict[str, list[tuple[GateSpec, Verdict]]] = {}
    for gate in gates:
        scored = _scored(gate, load_eval(gate.eval), records)
        if (base := scored.pop(default.id, None)) is not None:
            for id_, record in scored.items():
                judged.setdefault(id_, []).append((gate, compare_scored(gate, folder, base, record)))
    return {id_: refusal for id_, verdicts in judged.items() if (refusal := refusal_of(verdicts)) is not None}


def _scored(gate: GateSpec, eval_: EvalSpec, records: Sequence[Record]) -> dict[str, Record]:
    """Id of a setting → its latest score in the eval of a gate."""
    return {
        record.trial.runtime.id: record
        for record in records
        if record.phase == "gate"
        and isinstance(record.outcome, Scored)
        and isinstance(record.trial, EvalTrial)
        and record.trial.workload.harness_id == eval_.harness_id
        and gate.repeat in (None, record.trial.workload.repeat)
    }


def refusal_of(judged: Sequence[tuple[GateSpec, Verdict]]) -> AccuracyRefusal | None:
    """What the verdicts on a setting say together; None if it passes all of them."""
    refused = [(gate, verdict) for gate, verdict in judged if verdict.is_refusal]
    if not refused:
        return None
    excess = sum(_excess(verdict, gate.margin) for gate, verdict in refused)
    return AccuracyRefusal(excess, "; ".join(_why_not(verdict) for _, verdict in refused))


def _excess(verdict: Verdict, margin: float) -> float:
    """How far the loss exceeds the margin, relative to the margin."""
    if verdict.verdict == "inconclusive" or verdict.effect is None:
        return _UNPROVEN
    return max(-verdict.effect - margin, 0.0) / margin


def _why_not(verdict: Verdict) -> str:
    if verdict.verdict == "inconclusive" or verdict.effect is None:
        return f"accuracy undecided ({verdict.workload})"
    return f"less accurate: {100 * verdict.effect:+.2f} points ({verdict.workload})"


class _Answered(NamedTuple):
    """One side of a comparison."""

    side: str
    eval: str
    samples: str
    """File of its answers, relative to the folder of the journal."""
    measurement: str


def compare_scored(gate: GateSpec, folder: Path, default: Record, best: Record) -> Verdict:
    """Both scores by their samples, which lie in the journal's folder."""
    sides = []
    for name, record in (("default", default), ("best", best)):
        assert isinstance(record.outcome, Scored)
        assert record.outcome.samples is not None
        measurement = f"{record.id}:{record.occasion}"
        sides.append(_Answered(name, record.trial.workload.name, record.outcome.samples, measurement))
    return _compare(gate, folder, sides[0], sides[1])


@lru_cache(maxsize=4096)
def _compare(gate: GateSpec, folder: Path, default: _Answered, best: _Answered) -> Verdict:
    """A study asks before each of its boots; the answers behind a record do not change."""
    sides = [
        ComparedEval(one.side, one.eval, read_samples(folder / one.samples), (one.measurement,))
        for one in (default, best)
    ]
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
