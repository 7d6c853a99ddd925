"""Which tables may leave dsabench as a default."""

from __future__ import annotations

from typing import Literal

from dsabench.errors import InputError
from dsabench.model.tuned_table import TunedTable


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
        raise InputError(
            f"{name}: rests on random weights' values (simulated); --allow-simulated emits it all the same"
        )
    if table.kind == "flashmla_auto" and table.kv_cache_dtype == "bfloat16":
        raise InputError(f"{name}: flashmla_kv reads fp8 only, so with bfloat16 there is nothing to choose")
    if table.changes_numerics:
        _require_gates(table)


def _require_gates(table: TunedTable) -> None:
    gates = table.evidence.gates
    if not gates:
        raise InputError(
            f"{table.file_name}: dense attention beyond index_topk={table.index_topk} changes answers, and no eval on real "
            "weights is in its evidence: faster, accuracy unproven, so it is no default"
        )
    failed = next((gate for gate in gates if not gate.passed), None)
    if failed is not None:
        raise InputError(f"{table.file_name}: {failed.eval} came out {failed.verdict}, so it is no default")
