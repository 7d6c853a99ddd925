"""Which kernel reads which KV dtype, and what becomes of flashmla_kv on a bfloat16 pool.

flashmla_kv reads packed fp8 rows alone. Given a bfloat16 pool, `_forward_flashmla_kv` first turns the layer's whole pool
into such rows, at every call ("inefficiently quantize the whole cache"). Up to 0.5.18 the kernel that does so multiplies
row and row length in 32 bits; 0.5.19 widened the row to 64 (github.com/sgl-project/sglang/pull/30859).
`tests/wheels/row_offsets.py` compiles it out of a wheel and shows which.
"""

from __future__ import annotations

from dsabench.runtimes.sglang.rules.rule import V10, V18, Change, Rule, says, to
from dsabench.runtimes.sglang.rules.setting import Setting

_PAGE = 64
_PACKED_ROW = 656
"""Bytes of 512 numbers in fp8, 4 scales in fp32 and 64 rotated numbers in bfloat16."""
_BF16_ROW = 1152

_BF16_DECODE = {"fa3", "flashmla_sparse"}

REACH = 2**31 // _PACKED_ROW // _PAGE * _PAGE - _PAGE
"""The largest pool, in tokens, of which every packed row starts within 32 signed bits; a pool has one page beside it."""


def _running(s: Setting) -> tuple[str | None, str | None]:
    """Prefill and decode kernel as far as they run: half a pair has one phase, but drafts extend with decode's kernel."""
    prefill = None if s.role == "decode" else s.kernels.prefill
    decode = None if s.role == "prefill" and s.speculation.algorithm is None else s.kernels.decode
    return prefill, decode


def _wrong_dtype(s: Setting) -> bool:
    prefill, decode = _running(s)
    return s.uses_dsa and s.cuda and s.kernels.kv == "fp8_e4m3" and (prefill == "fa3" or decode in _BF16_DECODE)


def _reads_bf16_packed(s: Setting) -> bool:
    return s.uses_dsa and s.cuda and s.kernels.kv == "bfloat16" and "flashmla_kv" in _running(s)


def _most_tokens_in_memory(s: Setting) -> int | None:
    """No pool is larger: what all stages have beside the weights, at one bfloat16 row per layer and token."""
    if not s.model.layers or s.device is None or s.on("cache_layer_split"):
        return None
    weights_gib = (s.model.weights_gib or 0.0) / s.parallel.tp
    gib = s.device.memory_gib * s.static_fraction * s.parallel.pp - weights_gib
    return int(gib * 2**30 / (s.model.layers * _BF16_ROW))


def _may_pass_the_reach(s: Setting) -> bool:
    """Unless asked for fewer tokens, the runtime fills the memory that is free at boot, which only a bound foretells."""
    bounds = [tokens for tokens in (s.number("max_total_tokens"), _most_tokens_in_memory(s)) if tokens is not None]
    return not bounds or min(bounds) // _PAGE * _PAGE > REACH


def _prefill_without_its_plan(s: Setting) -> bool:
    """0.5.9 and 0.5.10 plan the kernel's work, for prefill too, only where decode runs it (nsa_backend.py:650, 640)."""
    prefill, _ = _running(s)
    packed = prefill == "flashmla_kv" or (prefill == "flashmla_auto" and s.kernels.kv == "fp8_e4m3")
    return s.uses_dsa and s.cuda and packed and s.kernels.decode != "flashmla_kv"


def _reads_fp8(s: Setting) -> Change:
    prefill = s.text("prefill_backend")
    return {
        "kv_cache_dtype": s.kernels.kv,
        "prefill_backend": prefill if prefill == "flashmla_sparse" else None,
        "decode_backend": None,
    }


def _sparse_for_packed(s: Setting) -> Change:
    prefill, decode = ("flashmla_sparse" if kernel == "flashmla_kv" else kernel for kernel in s.kernels.pair)
    return {"prefill_backend": prefill, "decode_backend": decode}


def _plan_for_prefill(s: Setting) -> Change:
    if s.kernels.kv == "fp8_e4m3":
        return {"decode_backend": "flashmla_kv"}
    return {"prefill_backend": "flashmla_sparse"}


RULES = (
    Rule(
        id="SL04",
        severity="error",
        condition="fp8_e4m3 KV with a kernel that reads bfloat16 alone: fa3, or flashmla_sparse for decode",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=_wrong_dtype,
        words=says(
            "silent",
            "nothing at launch; the server ends at its first token: 'query and key must have the same dtype' (fa3) or "
            "'kv must have dtype torch::kBFloat16' (flashmla_sparse)",
        ),
        fix="leave the backends out",
        change=_reads_fp8,
        source="0.5.9=srt/layers/attention/nsa_backend.py:1560; 0.5.12=srt/layers/attention/nsa_backend.py:1628; "
        "0.5.16=srt/layers/attention/dsa_backend.py:2215; 0.5.23=srt/layers/attention/dsa_backend.py:2639",
    ),
    Rule(
        id="SL11",
        severity="error",
        until=V18,
        condition=f"flashmla_kv on a bfloat16 KV pool that may have more than {REACH:,} tokens",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend", "max_total_tokens"),
        when=lambda s: _reads_bf16_packed(s) and _may_pass_the_reach(s),
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
        id="BE26",
        severity="error",
        until=V10,
        condition="flashmla_kv for prefill with another kernel for decode, which 0.5.9 and 0.5.10 do not prepare",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=_prefill_without_its_plan,
        words=says(
            "silent",
            "nothing at launch; the first prompt beyond the dense threshold ends in \"AttributeError: 'NoneType' object has "
            "no attribute 'flashmla_metadata'\"",
        ),
        fix="flashmla_kv for both (fp8_e4m3), or flashmla_sparse for prefill (bfloat16)",
        change=_plan_for_prefill,
        source="0.5.9=srt/layers/attention/nsa_backend.py:655; 0.5.10=srt/layers/attention/nsa_backend.py:645",
    ),
    Rule(
        id="SL12",
        severity="advisory",
        condition="flashmla_kv on a bfloat16 KV pool, which it quantises whole, layer by layer, at every step",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=_reads_bf16_packed,
        words=says(
            "silent",
            f"nothing; each call reads {_BF16_ROW:,} bytes per token of the pool, used or not, and writes {_PACKED_ROW} beside "
            "it: bfloat16's memory, fp8's numbers, and a time that grows with the pool",
        ),
        fix="kv_cache_dtype: fp8_e4m3, or flashmla_sparse",
        change=_sparse_for_packed,
        source="0.5.9=srt/layers/attention/nsa_backend.py:1730; 0.5.12=srt/layers/attention/nsa_backend.py:1814; "
        "0.5.16=srt/layers/attention/dsa_backend.py:2525; 0.5.23=srt/layers/attention/dsa_backend.py:3343",
    ),
)
