"""Tuned defaults as settings of a launch: what a table's rule means as knobs, and the best setting of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.model.knobs import KnobValue
from dsabench.model.outcome import Measured
from dsabench.model.record import Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import Objective
from dsabench.model.trial import Trial
from dsabench.model.tuned_table import BufferRule, ConstantRule, ThresholdRule, TunedTable
from dsabench.search.objective import Score, better, score


@dataclass(frozen=True, slots=True)
class Best:
    """The best setting of one workload."""

    workload: str
    spec: RuntimeSpec
    value: float
    boots: int


def knobs_of(table: TunedTable) -> dict[str, KnobValue]:
    """The settings that say the same as the table.

    Raises:
        InputError: no flag can say it.

    """
    rule = table.rule
    if isinstance(rule, ConstantRule):
        return {"prefill_backend": rule.kernel}
    if isinstance(rule, ThresholdRule):
        return {"mha_threshold_tokens": rule.max_tokens}
    if isinstance(rule, BufferRule):
        block = {} if rule.swap_in_block_size is None else {"hisparse_swap_in_block_size": rule.swap_in_block_size}
        return {
            "hisparse": True,
            "hisparse_device_buffer_size": rule.device_buffer_size,
            "hisparse_host_to_device_ratio": rule.host_to_device_ratio,
            **block,
        }
    raise InputError(
        f"{table.file_name}: a flag names one kernel, this rule chooses per batch: --as plugin or --as patch delivers it"
    )


def best_settings(records: Sequence[Record], objective: Objective) -> list[Best]:
    """Per workload the feasible setting with the best value, medians over the boots of the last environment.

    Where settings were confirmed, only those compete: a search's winner is flattered by having been picked.

    Raises:
        InputError: no load test was measured, or nothing of a workload is inside the constraints.

    """
    served = [(record, record.trial) for record in records if isinstance(record.trial, Trial)]
    measured = [(record, trial) for record, trial in served if isinstance(record.outcome, Measured)]
    if not measured:
        raise InputError("no load test of this study was measured")
    last = measured[-1][0].environment.fingerprint
    found: dict[str, dict[str, list[tuple[Record, RuntimeSpec]]]] = {}
    for record, trial in measured:
        if record.environment.fingerprint == last:
            of_workload = found.setdefault(trial.workload.name, {})
            of_workload.setdefault(trial.runtime.id, []).append((record, trial.runtime))
    return [_best_of(name, settings, objective) for name, settings in found.items()]


def _best_of(name: str, settings: Mapping[str, list[tuple[Record, RuntimeSpec]]], objective: Objective) -> Best:
    confirmed = {
        key: kept for key, pairs in settings.items() if (kept := [p for p in pairs if p[0].phase == "confirm"])
    }
    best: tuple[Score, Best] | None = None
    for pairs in (confirmed or settings).values():
        scores = [score(objective, {name: [record]}) for record, _ in pairs]
        values = sorted(one.value for one in scores if one.value is not None)
        if not values:
            continue
        middle = Score(values[len(values) // 2], max(one.violation for one in scores))
        if middle.is_feasible and (best is None or better(objective, middle, best[0])):
            best = middle, Best(name, pairs[0][1], values[len(values) // 2], len(values))
    if best is None:
        raise InputError(f"{name}: no measured setting is inside the constraints")
    return best[1]
