"""HiSparse: a hot KV buffer on the GPU, the rest in host memory."""

from __future__ import annotations

from dsabench.sglang.rules.rule import (
    V10,
    V12,
    V15,
    V22,
    Change,
    Rule,
    says,
    to,
    without,
)
from dsabench.sglang.rules.setting import Setting

_SPEC = ("speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
_SIZES = (
    "hisparse_top_k",
    "hisparse_device_buffer_size",
    "hisparse_host_to_device_ratio",
    "hisparse_swap_in_block_size",
)
_OFF = without("hisparse", *_SIZES)


def _on(s: Setting) -> bool:
    return s.hisparse.on and s.model.is_dsa


def _tilelang_fp8(s: Setting) -> bool:
    return _on(s) and s.cuda and s.kernels.kv == "fp8_e4m3" and "tilelang" in s.kernels.pair


def _spec(s: Setting) -> bool:
    """Speculation in the version that first takes it together with HiSparse, and would start."""
    return _on(s) and s.speculation.algorithm is not None and not s.prefix_cache


def _room(s: Setting) -> Change:
    return {"hisparse_device_buffer_size": 2 * max(s.hisparse.top_k, s.model.index_topk or 0)}


RULES = (
    Rule(
        id="HS07",
        severity="error",
        since=V10,
        condition="a hot buffer smaller than hisparse_top_k (2048 unless set)",
        knobs=("hisparse", "hisparse_top_k", "hisparse_device_buffer_size"),
        when=lambda s: _on(s) and s.hisparse.buffer < s.hisparse.top_k,
        words=says(
            "ValueError",
            "device_buffer_size ({s.hisparse.buffer}) must be no smaller than top_k ({s.hisparse.top_k})",
        ),
        fix="a hisparse_device_buffer_size of twice index_topk",
        change=_room,
        source="0.5.12=srt/mem_cache/sparsity/factory.py:84; 0.5.16=srt/mem_cache/sparsity/factory.py:85; "
        "0.5.23=srt/mem_cache/sparsity/factory.py:86",
    ),
    Rule(
        id="HS08",
        severity="error",
        since=V15,
        condition="a swap-in block of more than 1024 threads",
        knobs=("hisparse", "hisparse_swap_in_block_size"),
        when=lambda s: _on(s) and s.hisparse.block > 1024,
        words=says("ValueError", "swap_in_block_size ({s.hisparse.block}) must be in the range [1, 1024]"),
        fix="hisparse_swap_in_block_size: 960",
        change=to(hisparse_swap_in_block_size=960),
        source="0.5.16=srt/mem_cache/sparsity/factory.py:93; 0.5.23=srt/mem_cache/sparsity/factory.py:94",
    ),
    Rule(
        id="SL08",
        severity="error",
        since=V12,
        condition="a hot buffer smaller than the model's index_topk, which replaces hisparse_top_k",
        knobs=("hisparse", "hisparse_top_k", "hisparse_device_buffer_size"),
        when=lambda s: _on(s) and s.hisparse.top_k <= s.hisparse.buffer < (s.model.index_topk or 0),
        words=says("silent", "nothing; the buffer is checked against hisparse_top_k and used with index_topk"),
        fix="a hisparse_device_buffer_size of twice index_topk",
        change=_room,
        source="0.5.12=srt/model_executor/model_runner.py:774; 0.5.23=srt/model_executor/model_runner.py:1039",
    ),
    Rule(
        id="HS20",
        severity="overwritten",
        since=V12,
        condition="a hisparse_top_k other than the model's index_topk",
        knobs=("hisparse", "hisparse_top_k"),
        when=lambda s: _on(s) and s.asked("hisparse_top_k") and s.hisparse.top_k != s.model.index_topk,
        words=says("silent", "index_topk ({s.model.index_topk}) is used"),
        fix="leave hisparse_top_k out; tune the buffer, the ratio and the block",
        change=without("hisparse_top_k"),
        source="0.5.12=srt/model_executor/model_runner.py:774; 0.5.23=srt/model_executor/model_runner.py:1039",
    ),
    Rule(
        id="HS21",
        severity="advisory",
        since=V10,
        condition="HiSparse elsewhere than on the decode role, where alone its documents place it; the code takes it",
        knobs=("hisparse",),
        when=lambda s: s.hisparse.on and s.role != "decode",
        words=says("document", "HiSparse is experimental and needs PD disaggregation, on the decode instance only"),
        fix="put it on the decode role, or measure it as what it is",
        source="documents: HiSparse guide; usage guide, 'HiSparse (experimental)'; 0.5.23=srt/managers/scheduler.py:3921",
    ),
    Rule(
        id="HS22",
        severity="advisory",
        since=V10,
        condition="HiSparse, which its documents call experimental",
        knobs=("hisparse",),
        when=lambda s: s.hisparse.on and s.role == "decode",
        words=says("document", "experimental"),
        fix="compare its output with that of a server without it",
        source="documents: usage guide, 'HiSparse: Hierarchical Sparse Attention for DSA (experimental)'",
    ),
    Rule(
        id="HS23",
        severity="advisory",
        since=V10,
        condition="a host_to_device_ratio of 5 or more, for which the documents count 1 TB of host memory per 5",
        knobs=("hisparse", "hisparse_host_to_device_ratio"),
        when=lambda s: s.hisparse.on and s.hisparse.ratio >= 5,
        words=says("document", "about 1 TB of host memory for a ratio of 5, 2 TB for 10"),
        fix="a ratio that the host's memory holds",
        change=to(hisparse_host_to_device_ratio=4),
        source="documents: HiSparse guide, 'Key Notes'",
    ),
    Rule(
        id="HS24",
        severity="advisory",
        since=V12,
        condition="HiSparse with fp8_e4m3 KV, of which its document knows nothing yet; the code takes it from 0.5.12",
        knobs=("hisparse", "kv_cache_dtype"),
        when=lambda s: _on(s) and s.kernels.kv == "fp8_e4m3",
        words=says("document", "only a bfloat16 KV cache and flashmla_sparse are supported (as of 0.5.10)"),
        fix="kv_cache_dtype: bfloat16",
        change=lambda _: {"kv_cache_dtype": "bfloat16", "prefill_backend": None, "decode_backend": None},
        source="documents: HiSparse guide, 'Key Notes'; 0.5.12=srt/arg_groups/hisparse_hook.py:16",
    ),
    Rule(
        id="HS12",
        severity="error",
        since=V22,
        condition="HiSparse with fewer than 2 or more than 4 tokens per verification, or index_topk below 1024",
        knobs=("hisparse", *_SPEC),
        when=lambda s: (
            _spec(s) and not (2 <= (s.speculation.draft_tokens or 2) <= 4 and (s.model.index_topk or 1024) >= 1024)
        ),
        words=says("ValueError", "HiSparse spec swap requires 2-4 draft tokens and top_k >= 1024."),
        fix="1 to 3 speculative_num_steps",
        change=to(speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4),
        source="0.5.23=srt/managers/hisparse_coordinator.py:180",
    ),
    Rule(
        id="HS13",
        severity="error",
        since=V22,
        condition="HiSparse with more than 8192 swapped-in entries per verification (draft tokens × index_topk)",
        knobs=("hisparse", *_SPEC),
        when=lambda s: (
            _spec(s)
            and 2 <= (s.speculation.draft_tokens or 2) <= 4
            and (s.speculation.draft_tokens or 2) * (s.model.index_topk or 0) > 8192
        ),
        words=says("ValueError", "HiSparse spec swap supports at most 8192 occurrences."),
        fix="fewer speculative_num_steps",
        change=to(speculative_num_steps=1, speculative_eagle_topk=1, speculative_num_draft_tokens=2),
        source="0.5.23=srt/managers/hisparse_coordinator.py:184",
    ),
    Rule(
        id="HS14",
        severity="error",
        since=V22,
        condition="HiSparse and speculation with more requests per rank than slots in the hot buffer",
        knobs=("hisparse", "max_running_requests", "hisparse_device_buffer_size", *_SPEC),
        when=lambda s: (
            _spec(s) and (s.number("max_running_requests") or 0) // s.parallel.attention_dp > s.hisparse.buffer
        ),
        words=says("ValueError", "HiSparse spec request capacity must not exceed device_buffer_size."),
        fix="a smaller max_running_requests",
        change=lambda s: {"max_running_requests": s.hisparse.buffer * s.parallel.attention_dp // 2},
        source="0.5.23=srt/managers/hisparse_coordinator.py:187",
    ),
    Rule(
        id="HS18",
        severity="error",
        since=V22,
        condition="HiSparse and speculation on the decode role with a transfer other than mooncake",
        knobs=("hisparse", "transfer_backend", *_SPEC),
        when=lambda s: (
            _spec(s)
            and s.role == "decode"
            and s.text("transfer_backend") not in {None, "mooncake", "mooncake_tcp", "fake"}
        ),
        words=says("NotImplementedError", "HiSparse device-only PD transfer currently requires the Mooncake backend"),
        fix="transfer_backend: mooncake",
        change=to(transfer_backend="mooncake"),
        source="0.5.23=srt/disaggregation/decode.py:1810",
    ),
)
