"""Which settings compute otherwise, so that their answers may differ."""

from __future__ import annotations

from dsabench.model.knobs import ARGS, of_role
from dsabench.model.runtime import RuntimeSpec

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


def changed_numerics(default: RuntimeSpec, best: RuntimeSpec) -> tuple[str, ...]:
    """The knobs (and variables) in which two settings differ and that may change answers."""
    knobs = {name for name in {*default.knobs, *best.knobs} if default.knobs.get(name) != best.knobs.get(name)}
    env = {name for name in {*default.env, *best.env} if default.env.get(name) != best.env.get(name)}
    numeric = {name for name in knobs if of_role(name)[1] in NUMERIC_KNOBS or name.startswith(ARGS)}
    return tuple(sorted(numeric | env))
