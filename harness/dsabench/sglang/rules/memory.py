"""Memory: what weights and pools need, and how far a pool can be addressed."""

from __future__ import annotations

from dsabench.sglang.rules.kernels import BF16_ROW, INDEX_ROW, PACKED_ROW, reads_bf16_packed
from dsabench.sglang.rules.setting import Change, Setting
from dsabench.sglang.versions import V16


def weights_do_not_fit(s: Setting) -> bool:
    """Weights alone beyond what the ranks have; a lower bound, so that nothing is refused that fits."""
    if s.model.weights_gib is None or s.device is None:
        return False
    return s.model.weights_gib / (s.parallel.tp * s.parallel.pp) > s.device.memory_gib * s.static_fraction


def room_for_weights(s: Setting) -> Change:
    """The fewest ranks, in eights, whose memory holds the weights."""
    gib, memory = s.model.weights_gib or 0, s.device.memory_gib if s.device else 1
    return {"tp_size": next(ranks for ranks in (8, 16, 32, 64) if gib <= ranks * memory), "mem_fraction_static": None}


_PAGE = 64

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
    return PACKED_ROW if s.model.shares_index else PACKED_ROW + INDEX_ROW


def _answers_matter(s: Setting) -> bool:
    """Trained weights on a pool that is known to have room beyond."""
    return s.text("load_format") != "dummy" and _most_tokens(s, _packed_row(s)) is not None


def runs_no_request(s: Setting) -> bool:
    """Fewer running requests than groups of the attention."""
    asked = s.number("max_running_requests")
    return asked is not None and 0 < asked < s.parallel.attention_dp


def a_request_per_group(s: Setting) -> Change:
    """A running request for each group."""
    return {"max_running_requests": s.parallel.attention_dp}


def quantiser_beyond_reach(s: Setting) -> bool:
    """flashmla_kv quantises a bfloat16 pool that may have more rows than 32 bits reach."""
    return reads_bf16_packed(s) and _may_pass_the_reach(s, BF16_ROW)


def prefix_beyond_reach(s: Setting) -> bool:
    """Prefill reads packed rows back from beyond 32 bits, and the answers matter."""
    return _reads_a_prefix_back(s) and _answers_matter(s) and _may_pass_the_reach(s, _packed_row(s))


def prefix_may_be_beyond_reach(s: Setting) -> bool:
    """The same of random weights, or of a pool whose size is not known."""
    return _reads_a_prefix_back(s) and not _answers_matter(s) and _may_pass_the_reach(s, _packed_row(s))
