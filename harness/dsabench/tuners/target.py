"""What a table is for: the runtime's model as a rank computes it, and the rule that the runtime ships."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dsabench.config.specs import RuntimeConfig, StudyConfig
from dsabench.errors import InputError
from dsabench.model.tuned_table import ConstantRule, RatioRule
from dsabench.model.value import KnobValue
from dsabench.reference.sizes import SIZES
from dsabench.sglang.model_config import read_config
from dsabench.sglang.models import find_model

_BLACKWELL = ("B200", "GB200", "B300", "GB300", "B100")


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a table's key that a config decides."""

    runtime: Literal["sglang", "reference"]
    heads_per_rank: int
    index_topk: int
    layers: int


def target_of(config: StudyConfig) -> Target:
    """The model's heads on one rank of the attention, and its index_topk.

    Raises:
        InputError: a runtime that has no tables, or a model whose widths are not known here.

    """
    return target_of_runtime(config.runtime)


def target_of_runtime(runtime: RuntimeConfig) -> Target:
    """The same of a config's runtime alone.

    Raises:
        InputError: as of the whole config.

    """
    knobs = runtime.base
    if runtime.kind == "reference":
        size = SIZES[runtime.model]
        return Target("reference", size.heads, size.index_topk, size.layers)
    if runtime.kind != "sglang":
        raise InputError(f"runtime.kind {runtime.kind}: tables are for sglang and the reference runtime")
    heads, topk, layers = _widths(runtime.model)
    ranks = _number(knobs, "tp_size") // (_number(knobs, "dp_size") if knobs.get("dp_attention") is True else 1)
    if ranks < 1 or heads % ranks:
        raise InputError(f"{heads} heads cannot be shared by {ranks} ranks of the attention")
    return Target("sglang", heads // ranks, topk, layers)


def shipped_rule(device: str) -> ConstantRule | RatioRule:
    """What a runtime does with an fp8 cache where nobody tuned: on Blackwell `flashmla_auto` has a constant (sglang 0.5.23
    dsa_backend.py:4093); everywhere else it comes to flashmla_kv always.
    """
    if any(name in device for name in _BLACKWELL):
        return RatioRule(kv_per_new_token=512)
    return ConstantRule(kernel="flashmla_kv")


def _widths(model: str) -> tuple[int, int, int]:
    config = read_config(model)
    if config is not None:
        found = tuple(config.get(name) for name in ("num_attention_heads", "index_topk", "num_hidden_layers"))
        heads, topk, layers = found
        if isinstance(heads, int) and isinstance(topk, int) and isinstance(layers, int):
            return heads, topk, layers
        raise InputError(f"{model}: its config.json has no num_attention_heads, index_topk or num_hidden_layers")
    known = find_model(model)
    if known is None:
        raise InputError(f"{model}: neither a folder with config.json nor a model whose widths are known")
    return known.heads, known.index_topk, known.layers


def _number(knobs: object, name: str) -> int:
    value: KnobValue | None = knobs.get(name) if hasattr(knobs, "get") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else 1
