"""Which settings compute otherwise, so that their answers may differ."""

from __future__ import annotations

from collections.abc import Mapping

from dsabench.model.knobs import ARGS, of_role
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.value import KnobValue

NUMERIC_KNOBS = frozenset(
    {
        *("kv_cache_dtype", "attention_backend", "prefill_backend", "decode_backend", "mha_threshold_tokens"),
        *("topk_backend", "fuse_topk", "mqa_logits_backend", "triton_union", "index_topk_pattern", "quantization"),
        *("moe_runner_backend", "moe_a2a_backend", "shared_experts_fusion", "hisparse", "hisparse_top_k", "dtype"),
        *("model_overrides", "simulated_accept_length", "speculative_algorithm", "deterministic", "sampling_backend"),
        "device",
    }
)
"""Settings that other arithmetic runs under, so that answers may change; the rest moves work in time or space. What an
argument under the runtime's own name does is not known, so each counts as well.
"""

_ROUND_ALIKE = frozenset({"flashmla_sparse", "flashmla_kv", "flashmla_auto", "fa3", "tilelang"})
"""Attention kernels that multiply in bfloat16 and add in float32, of a KV cache of either dtype: between two of them answers differ by
the order of additions, as between two chunk sizes. trtllm takes fp8 queries, and aiter other hardware.
"""


def changed_numerics(default: RuntimeSpec, best: RuntimeSpec) -> tuple[str, ...]:
    """The knobs (and variables) in which two settings differ and that may change answers."""
    return tuple(sorted({*_changed_knobs(default, best), *_changed_env(default, best)}))


def other_precision(default: RuntimeSpec, best: RuntimeSpec) -> tuple[str, ...]:
    """Of those, the ones that change more than the order of additions."""
    apart = (
        name
        for name in _changed_knobs(default, best)
        if differs(name, stated(default.knobs, name), stated(best.knobs, name))
    )
    return tuple(sorted({*apart, *_changed_env(default, best)}))


def differs(knob: str, one: KnobValue | None, other: KnobValue | None) -> bool:
    """Whether two values of a knob may change more than the order of additions."""
    is_kernel = of_role(knob)[1] in {"prefill_backend", "decode_backend"}
    return one != other and is_numeric(knob) and not (is_kernel and {one, other} <= _ROUND_ALIKE)


def stated(knobs: Mapping[str, KnobValue], knob: str) -> KnobValue | None:
    """The value that a setting states; of a role's knob without one, that of all servers. None leaves it to the runtime."""
    return knobs.get(knob, knobs.get(of_role(knob)[1]))


def is_numeric(knob: str) -> bool:
    """Whether it may change answers."""
    return of_role(knob)[1] in NUMERIC_KNOBS or knob.startswith(ARGS)


def _changed_knobs(default: RuntimeSpec, best: RuntimeSpec) -> set[str]:
    names = {*default.knobs, *best.knobs}
    return {name for name in names if default.knobs.get(name) != best.knobs.get(name) and is_numeric(name)}


def _changed_env(default: RuntimeSpec, best: RuntimeSpec) -> set[str]:
    return {name for name in {*default.env, *best.env} if default.env.get(name) != best.env.get(name)}
