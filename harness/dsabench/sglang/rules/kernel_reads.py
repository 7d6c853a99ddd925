"""Which kernel reads which KV dtype, and what becomes of flashmla_kv on a bfloat16 pool.

flashmla_kv reads packed fp8 rows alone. Given a bfloat16 pool, `_forward_flashmla_kv` first turns the layer's whole pool
into such rows, at every call ("inefficiently quantize the whole cache"); `pool_reach` has the pool up to which it can.
"""

from __future__ import annotations

from dsabench.sglang.rules.rule import V10, Change, Rule, says
from dsabench.sglang.rules.setting import Setting

PACKED_ROW = 656
"""Bytes of 512 numbers in fp8, 4 scales in fp32 and 64 rotated numbers in bfloat16."""
BF16_ROW = 1152

_BF16_DECODE = {"fa3", "flashmla_sparse"}


def _running(s: Setting) -> tuple[str | None, str | None]:
    """Prefill and decode kernel as far as they run: half a pair has one phase, but drafts extend with decode's kernel."""
    prefill = None if s.role == "decode" else s.kernels.prefill
    decode = None if s.role == "prefill" and s.speculation.algorithm is None else s.kernels.decode
    return prefill, decode


def _wrong_dtype(s: Setting) -> bool:
    prefill, decode = _running(s)
    return s.uses_dsa and s.cuda and s.kernels.kv == "fp8_e4m3" and (prefill == "fa3" or decode in _BF16_DECODE)


def reads_bf16_packed(s: Setting) -> bool:
    """Whether a bfloat16 pool is read by flashmla_kv."""
    return s.uses_dsa and s.cuda and s.kernels.kv == "bfloat16" and "flashmla_kv" in _running(s)


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
        when=reads_bf16_packed,
        words=says(
            "silent",
            f"nothing; each call reads {BF16_ROW:,} bytes per token of the pool, used or not, and writes {PACKED_ROW} beside "
            "it: bfloat16's memory, fp8's numbers, and a time that grows with the pool",
        ),
        fix="kv_cache_dtype: fp8_e4m3, or flashmla_sparse",
        change=_sparse_for_packed,
        source="0.5.9=srt/layers/attention/nsa_backend.py:1730; 0.5.12=srt/layers/attention/nsa_backend.py:1814; "
        "0.5.16=srt/layers/attention/dsa_backend.py:2525; 0.5.23=srt/layers/attention/dsa_backend.py:3343",
    ),
)
