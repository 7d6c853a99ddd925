"""What a table is for: the runtime's model as a rank computes it, and the rule that the runtime ships."""

from __future__ import annotations

from collections.abc import Mapping

from dsabench.config.specs import RuntimeConfig, StudyConfig
from dsabench.model.tuned_table import ConstantRule, RatioRule
from dsabench.model.value import KnobValue
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.protocol import AttentionShape

_BLACKWELL = ("B200", "GB200", "B300", "GB300", "B100")


def target_of(config: StudyConfig) -> AttentionShape:
    """The model's heads on one rank of the attention, and its index_topk.

    Raises:
        InputError: a runtime that has no tables, or a model whose widths are not known here.

    """
    return target_of_runtime(config.runtime)


def target_of_runtime(runtime: RuntimeConfig) -> AttentionShape:
    """The same of a config's runtime alone.

    Raises:
        InputError: as of the whole config.

    """
    return make_runtime(runtime).attention(runtime.spec({}))


def attention_groups(knobs: Mapping[str, KnobValue]) -> int:
    """Groups of DP attention, which share a chunk and compute the experts together."""
    size = knobs.get("dp_size", 1)
    return size if knobs.get("dp_attention") is True and isinstance(size, int) else 1


def shipped_rule(device: str) -> ConstantRule | RatioRule:
    """What a runtime does with an fp8 cache where nobody tuned: on Blackwell `flashmla_auto` has a constant (sglang 0.5.23
    dsa_backend.py:4093); everywhere else it comes to flashmla_kv always.
    """
    if any(name in device for name in _BLACKWELL):
        return RatioRule(kv_per_new_token=512)
    return ConstantRule(kernel="flashmla_kv")
