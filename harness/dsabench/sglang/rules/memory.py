"""Memory: what weights and pools need, and how far a pool can be addressed."""

from __future__ import annotations

from dsabench.model.value import KnobValue
from dsabench.sglang.rules.kernels import BF16_ROW, PACKED_ROW, reads_bf16_packed
from dsabench.sglang.rules.rule import V9, V10, V16, V18, V22, Rule, Words, says, to
from dsabench.sglang.rules.setting import Setting


def _does_not_fit(s: Setting) -> bool:
    """Weights alone beyond what the ranks have; a lower bound, so that nothing is refused that fits."""
    if s.model.weights_gib is None or s.device is None:
        return False
    return s.model.weights_gib / (s.parallel.tp * s.parallel.pp) > s.device.memory_gib * s.static_fraction


def _room_for_weights(s: Setting) -> dict[str, KnobValue | None]:
    """The fewest ranks, in eights, whose memory holds the weights."""
    gib, memory = s.model.weights_gib or 0, s.device.memory_gib if s.device else 1
    return {"tp_size": next(ranks for ranks in (8, 16, 32, 64) if gib <= ranks * memory), "mem_fraction_static": None}


_PAGE = 64

_INDEX_ROW = 132
"""Bytes of an indexer's key: 128 numbers in fp8 and a scale in fp32."""

REACH = 2**31 // PACKED_ROW // _PAGE * _PAGE - _PAGE
"""The largest pool, in tokens, of which every packed row starts within 32 signed bits; a pool has one page beside it."""


def _most_tokens_in_memory(s: Setting, row: int) -> int | None:
    """No pool is larger: what all stages have beside the weights, at one row of so many bytes per layer and token."""
    if not s.model.layers or s.device is None or s.on("cache_layer_split"):
        return None
    weights_gib = (s.model.weights_gib or 0.0) / s.parallel.tp
    gib = s.device.memory_gib * s.static_fraction * s.parallel.pp - weights_gib
    return int(gib * 2**30 / (s.model.layers * row))


def _most_tokens(s: Setting, row: int) -> int | None:
    """Unless asked for fewer tokens, the runtime fills the memory that is free at boot, which only a bound foretells."""
    bounds = [tokens for tokens in (s.number("max_total_tokens"), _most_tokens_in_memory(s, row)) if tokens is not None]
    return min(bounds) // _PAGE * _PAGE if bounds else None


def _may_pass_the_reach(s: Setting, row: int) -> bool:
    tokens = _most_tokens(s, row)
    return tokens is None or tokens > REACH


def _dense_over_a_prefix(s: Setting) -> bool:
    """Short prompts are attended densely whatever the kernel, also after a cached part: at least one page of it."""
    threshold = s.number("mha_threshold_tokens")
    never = s.parallel.cp or s.hisparse.on or s.sm_major not in {9, 10}
    return not never and (threshold is None or threshold > _PAGE)


def _reads_a_prefix_back(s: Setting) -> bool:
    """Whether prefill turns packed rows into what it can read. flashmla_auto takes flashmla_sparse at times."""
    packed = s.uses_dsa and s.cuda and s.kernels.kv == "fp8_e4m3" and "trtllm" not in s.kernels.pair
    if not packed or s.role == "decode":
        return False
    gathers = s.kernels.prefill in {"flashmla_sparse", "flashmla_auto"}
    return gathers or (s.kernels.prefill == "flashmla_sparse_q8" and s.version <= V16) or _dense_over_a_prefix(s)


def _packed_row(s: Setting) -> int:
    return PACKED_ROW if s.model.shares_index else PACKED_ROW + _INDEX_ROW


def _answers_matter(s: Setting) -> bool:
    """Trained weights on a pool that is known to have room beyond."""
    return s.text("load_format") != "dummy" and _most_tokens(s, _packed_row(s)) is not None


_IN_USE = (
    "once requests and kept prefixes hold more (in a prefill half: once more were taken since the last flush), prefill after "
    "a cached prefix or an earlier chunk reads other rows than its own, or dies of an illegal memory access"
)

_SOURCE = (
    "0.5.9=srt/layers/attention/nsa/dequant_k_cache.py:251; 0.5.12=srt/layers/attention/nsa/dequant_k_cache.py:251; "
    "0.5.16=kernels/ops/attention/dsa/dequant_k_cache.py:251; 0.5.18=kernels/ops/attention/dsa/dequant_k_cache.py:253"
)


def _runs_none(s: Setting) -> bool:
    asked = s.number("max_running_requests")
    return asked is not None and 0 < asked < s.parallel.attention_dp


RULES = (
    Rule(
        id="MR01",
        severity="error",
        until=V22,
        condition="fewer running requests than groups of the attention, each of which gets its share of them: none",
        knobs=("max_running_requests", "dp_size", "dp_attention"),
        when=_runs_none,
        words=says("AssertionError", "max_running_request is zero"),
        fix="max_running_requests: at least dp_size",
        change=lambda s: {"max_running_requests": s.parallel.attention_dp},
        source="0.5.9=srt/managers/tp_worker.py:282; 0.5.16=srt/managers/tp_worker.py:381; "
        "0.5.22=srt/managers/tp_worker.py:413",
    ),
    Rule(
        id="MM01",
        severity="error",
        condition="weights that take more than the memory of all ranks, so that nothing is left for KV",
        knobs=("tp_size", "pp_size", "mem_fraction_static"),
        when=_does_not_fit,
        words=(
            Words(
                V9,
                "RuntimeError",
                "Not enough memory. Please try to increase --mem-fraction-static. Current value: ‹the fraction›",
            ),
            Words(V10, "RuntimeError", "Not enough memory. Please try to increase --mem-fraction-static."),
        ),
        fix="more ranks, or a larger mem_fraction_static",
        change=_room_for_weights,
        source="0.5.9=srt/model_executor/model_runner_kv_cache_mixin.py:417; "
        "0.5.12=srt/model_executor/pool_configurator.py:53; 0.5.16=srt/model_executor/pool_configurator.py:64; "
        "0.5.23=srt/model_executor/pool_configurator.py:96",
    ),
    Rule(
        id="SL11",
        severity="error",
        until=V18,
        condition=f"flashmla_kv on a bfloat16 KV pool that may have more than {REACH:,} tokens",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend", "max_total_tokens"),
        when=lambda s: reads_bf16_packed(s) and _may_pass_the_reach(s, BF16_ROW),
        words=says(
            "silent",
            "nothing at launch; its quantiser's 32-bit offsets wrap beyond: an illegal memory access at the first token, or "
            "other tensors are overwritten",
        ),
        fix=f"max_total_tokens: {REACH}, kv_cache_dtype: fp8_e4m3, or another kernel",
        change=to(max_total_tokens=REACH),
        source="0.5.9=srt/layers/attention/nsa/quant_k_cache.py:286; 0.5.12=srt/layers/attention/nsa/quant_k_cache.py:286; "
        "0.5.16=kernels/ops/attention/dsa/quant_k_cache.py:286; 0.5.18=kernels/ops/attention/dsa/quant_k_cache.py:286",
    ),
    Rule(
        id="SL13",
        severity="error",
        until=V18,
        condition=f"fp8_e4m3 KV that prefill turns back into bfloat16, in a pool with room for more than {REACH:,} tokens: "
        "flashmla_sparse, flashmla_auto, flashmla_sparse_q8 in 0.5.16, and dense prefill with any kernel",
        knobs=("kv_cache_dtype", "prefill_backend", "mha_threshold_tokens", "max_total_tokens"),
        when=lambda s: _reads_a_prefix_back(s) and _answers_matter(s) and _may_pass_the_reach(s, _packed_row(s)),
        words=says("silent", f"nothing, ever; {_IN_USE}"),
        fix=f"max_total_tokens: {REACH}, or 0.5.19 or later",
        change=to(max_total_tokens=REACH),
        source=_SOURCE,
    ),
    Rule(
        id="SL14",
        severity="advisory",
        until=V18,
        condition="fp8_e4m3 KV that prefill turns back into bfloat16 (as SL13), of random weights or in a pool whose size is not "
        f"known, if it has more than {REACH:,} tokens",
        knobs=("kv_cache_dtype", "prefill_backend", "mha_threshold_tokens", "max_total_tokens"),
        when=lambda s: _reads_a_prefix_back(s) and not _answers_matter(s) and _may_pass_the_reach(s, _packed_row(s)),
        words=says("silent", f"nothing; {_IN_USE}"),
        fix=f"max_total_tokens: {REACH}, 0.5.19 or later, or fewer tokens between two flushes",
        change=to(max_total_tokens=REACH),
        source=_SOURCE,
    ),
)
