"""A sweep's gate, where its config has one."""

from __future__ import annotations

from collections.abc import Callable

from dsabench.config.specs import StudyConfig
from dsabench.search.finalists import AccuracyGate
from dsabench.trial import Bench


async def gate_of(config: StudyConfig, bench: Bench, round_: int, say: Callable[[str], None]) -> AccuracyGate | None:
    """The gate of a config, its questions read; None without one.

    Raises:
        InputError: its questions cannot be had, or its grader is not installed.

    """
    if config.gate is None:
        return None
    from dsabench.evals.gate import prepare_gate

    run = await prepare_gate(config.gate, bench, config.default, round_, say)
    return AccuracyGate(config.gate.margin, config.gate.finalists, run.applies, run.score, run.judge)
