"""Which tuned defaults may leave dsabench: tables, and the settings of a study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dsabench.errors import InputError
from dsabench.model.runtime import RANDOM_WEIGHTS, SIMULATED, RuntimeSpec, labels_of
from dsabench.model.study import GateSpec
from dsabench.model.tuned_table import GateEvidence, ShapeGains, TunedTable
from dsabench.model.verdict import Verdict

_THRESHOLD = "mha_threshold_tokens"
_SIMULATED = "rests on random weights' values (simulated); --allow-simulated emits it all the same"


def require_emittable(table: TunedTable, runtime: Literal["sglang", "reference"], *, allow_simulated: bool) -> None:
    """Refuse what nobody measured, what rests on random values, and what may cost accuracy.

    Raises:
        InputError: one line with the reason.

    """
    name, evidence = table.file_name, table.evidence
    if table.runtime != runtime:
        raise InputError(f"{name}: is for the runtime {table.runtime}, not {runtime}")
    if evidence.label == "shipped":
        raise InputError(f"{name}: is what the runtime ships; nobody tuned it")
    if evidence.label == "simulated" and not allow_simulated:
        raise InputError(f"{name}: {_SIMULATED}")
    if table.kind == "flashmla_auto" and table.kv_cache_dtype == "bfloat16":
        raise InputError(f"{name}: flashmla_kv reads fp8 only, so with bfloat16 there is nothing to choose")
    if table.kind == "flashmla_auto" and evidence.ci_low is not None and evidence.ci_low < 0:
        raise InputError(f"{name}: its gain over what is shipped may be {evidence.ci_low:+.1%}: not shown to be faster")
    if evidence.gains is not None and (why := _not_faster(evidence.gains)) is not None:
        raise InputError(f"{name}: {why}: not shown to be faster")
    if table.changes_numerics and (why := _dense_unproven(evidence.gates, table.index_topk)) is not None:
        raise InputError(f"{name}: {why}")


def _not_faster(gains: ShapeGains) -> str | None:
    if gains.slower_shapes:
        return f"{gains.slower_shapes} of its shapes are slower than with what is shipped, by more than the noise of their times"
    return f"its gain over what is shipped is {gains.weighted:+.1%}" if gains.weighted <= 0 else None


def why_not_emitted(
    best: RuntimeSpec,
    default: RuntimeSpec,
    gates: Sequence[GateEvidence],
    *,
    index_topk: int | None,
    allow_simulated: bool,
) -> str | None:
    """Why the setting of a study is no default, after the rule for tables; None where it may be one.

    A gate that it did not pass refuses it whatever it changes, as the sweep does. What the default computes already is
    nobody's doing here. Where index_topk is not known, every other threshold than the default's counts as above it.
    """
    if SIMULATED in labels_of(best) and not allow_simulated:
        return _SIMULATED
    for own, shipped in zip(best.of_servers, default.of_servers, strict=True):
        tokens = own.get(_THRESHOLD)
        if not isinstance(tokens, int) or tokens == shipped.get(_THRESHOLD):
            continue
        if index_topk is None or tokens > index_topk:
            return _dense_unproven(gates, index_topk)
    return _failed(gates)


def gates_that_count(
    gates: Sequence[GateSpec], verdicts: Sequence[Verdict], labels: Sequence[str]
) -> tuple[GateEvidence, ...]:
    """The gates' verdicts where they can mean something: random weights of sglang have no accuracy.

    `verdicts` has one for each gate, or none where nothing was asked.
    """
    if not verdicts or RANDOM_WEIGHTS in labels:
        return ()
    return tuple(
        GateEvidence(
            eval=verdict.workload,
            measure=gate.measure,
            verdict=verdict.verdict,
            margin=gate.margin,
            difference=verdict.effect,
            ci_low=verdict.ci_low,
            n=verdict.n_base,
        )
        for gate, verdict in zip(gates, verdicts, strict=True)
    )


def _dense_unproven(gates: Sequence[GateEvidence], index_topk: int | None) -> str | None:
    """Why dense attention where the model was trained sparse is no default."""
    if gates:
        return _failed(gates)
    beyond = "index_topk" if index_topk is None else f"index_topk={index_topk}"
    return (
        f"dense attention beyond {beyond} changes answers, and no eval on real "
        "weights is in its evidence: faster, accuracy unproven, so it is no default"
    )


def _failed(gates: Sequence[GateEvidence]) -> str | None:
    failed = next((gate for gate in gates if not gate.passed), None)
    return None if failed is None else f"{failed.eval} came out {failed.verdict}, so it is no default"
