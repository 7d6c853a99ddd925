"""Tuned tables as settings of a launch: what a rule means as knobs."""

from __future__ import annotations

from dsabench.errors import InputError
from dsabench.model.tuned_table import BufferRule, ConstantRule, LaunchRule, StepsRule, ThresholdRule, TunedTable
from dsabench.model.value import KnobValue
from dsabench.sglang.readback import DIVIDED


def knobs_of(table: TunedTable, groups: int = 1) -> dict[str, KnobValue]:
    """The settings that say the same as the table, of a server with so many groups of DP attention.

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
    if isinstance(rule, StepsRule):
        first = max(rule.steps[0], 1)  # where the runtime begins
        steps = first if first in rule.candidates[0] else next(one for some in rule.candidates for one in some if one)
        return {
            "speculative_algorithm": "EAGLE",
            "speculative_num_steps": steps,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": steps + 1,
            "speculative_adaptive": True,
        }
    if isinstance(rule, LaunchRule):
        return {
            name: value * groups if name in DIVIDED and isinstance(value, int) and value > 0 else value
            for name, value in rule.settings.items()
        }
    raise InputError(
        f"{table.file_name}: a flag names one kernel, this rule chooses per batch: --as plugin or --as patch delivers it"
    )
