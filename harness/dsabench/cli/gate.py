"""A sweep's gate, where its config has one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dsabench.config.specs import SweepConfig
from dsabench.search.loop import Result
from dsabench.trial import Bench

if TYPE_CHECKING:
    from dsabench.evals.gate import GateRun


async def prepare_gate_of(config: SweepConfig, bench: Bench, round_: int) -> GateRun | None:
    """The gate of a config, its questions read; None without one.

    Raises:
        InputError: its questions cannot be had.

    """
    if config.gate is None:
        return None
    from dsabench.evals.gate import prepare_gate

    return await prepare_gate(config.gate, bench, config.runtime.model, round_)


async def pass_gate(gate: GateRun, config: SweepConfig, result: Result) -> Result:
    """The result with the gate's verdict, where the best setting was confirmed and may answer otherwise."""
    from dsabench.evals.gate import changed_numerics

    if result.best is None or not result.verdicts or not changed_numerics(config.default, result.best.spec):
        return result
    return replace(result, gate=await gate.judge(config.default, result.best.spec))
