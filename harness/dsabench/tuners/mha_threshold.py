"""The dense attention threshold: the sweep finds the fastest, the gate decides whether it may be a default."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.model.study_result import StudyResult
from dsabench.model.tuned_table import GateEvidence, ThresholdRule, TunedTable
from dsabench.sglang.model_config import full_widths
from dsabench.sglang.models import Widths
from dsabench.tuners.of_sweep import TunePlan, table_of_sweep, why_not_better, why_unfinished
from dsabench.tuners.target import target_of

KNOB = "mha_threshold_tokens"
Standing = Literal["default", "accuracy unproven", "refused by the gate", "not faster", "unfinished"]


def crossover_tokens(widths: Widths, heads_per_rank: int) -> float:
    """Tokens of a prompt up to which dense attention takes less arithmetic than sparse attention and its indexer; infinite where it
    always does.

    Of a prompt of n tokens, per layer: dense n²/2 × a, the indexer n²/2 × c (fp8, twice the rate), sparse (n k − k²/2) × b, with k
    tokens selected. Projections are as large on both sides.
    """
    a = heads_per_rank * (widths.qk_nope_head_dim + widths.qk_rope_head_dim + widths.v_head_dim)
    b = heads_per_rank * (2 * widths.kv_lora_rank + widths.qk_rope_head_dim)
    c = widths.index_heads * widths.index_head_dim / 2
    if a <= c:
        return math.inf
    k, rest = widths.index_topk, a - c
    return k * (b + math.sqrt(b * (b - rest))) / rest


def plan_threshold(config: StudyConfig) -> TunePlan:
    """The study that begins with the longest threshold below the crossover, and the arithmetic; as it was for a model whose widths
    are not known.

    Raises:
        InputError: as `require_threshold_study`.

    """
    require_threshold_study(config)
    try:
        target, widths = target_of(config), full_widths(config.runtime.model)
    except InputError:
        return TunePlan(config)
    tokens = crossover_tokens(widths, target.heads_per_rank)
    (axis,) = config.space.axes
    below = [value for value in axis.values if isinstance(value, int) and value <= tokens]
    space = config.space.model_copy(update={"enqueued": tuple({KNOB: value} for value in sorted(below)[-1:])})
    upto = "at any length" if math.isinf(tokens) else f"up to {tokens:,.0f} tokens"
    line = f"dense attention takes less arithmetic than sparse attention and its indexer {upto}, at {target.heads_per_rank} heads a rank"
    return TunePlan(config.model_copy(update={"space": space}), (line,))


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the study comes to. There is a table where something was faster, whatever its accuracy: its evidence says
    whether it may be emitted.
    """

    standing: Standing
    reason: str
    table: TunedTable | None


def require_threshold_study(config: StudyConfig) -> None:
    """Refuse a space that mixes the threshold with other settings: its curve would be theirs too.

    Raises:
        InputError: no axis of thresholds, or another one.

    """
    axes = [axis.name for axis in config.space.axes]
    if axes != [KNOB]:
        raise InputError(
            f"{config.name}: tune mha-threshold needs sweeps with the axis {KNOB} alone, here: {', '.join(axes)}"
        )


def propose(config: StudyConfig, result: StudyResult, command: str) -> Proposal:
    """The table of the best threshold, and where it stands."""
    if (why := why_unfinished(config, result)) is not None:
        return Proposal("unfinished", why, None)
    if (why := why_not_better(config, result)) is not None:
        return Proposal("not faster", why, None)
    assert result.best is not None, "it is better"
    tokens = result.best.spec.knobs[KNOB]
    assert isinstance(tokens, int), "the only axis of the study"
    table = table_of_sweep(ThresholdRule(max_tokens=tokens), config, result, (), command)
    if not table.changes_numerics:
        return Proposal("default", f"up to index_topk={table.index_topk} dense attention is exact", table)
    gates = table.evidence.gates
    if not gates:
        return Proposal(
            "accuracy unproven", "faster, but no eval on real weights says that answers stay as good", table
        )
    if all(gate.passed for gate in gates):
        return Proposal("default", "; ".join(map(_passed, gates)), table)
    reason = "; ".join(
        f"{gate.eval}: {gate.verdict}: {one.reason}"
        for gate, one in zip(gates, result.gates, strict=True)
        if not gate.passed
    )
    return Proposal("refused by the gate", reason, None)


def _passed(gate: GateEvidence) -> str:
    if gate.measure == "agreement":
        return f"{gate.eval}: no more than {gate.margin:.0%} of the answers are others than the default's"
    return f"not less accurate in {gate.eval}"
