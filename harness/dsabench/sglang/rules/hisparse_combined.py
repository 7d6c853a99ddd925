"""HiSparse together with something else: speculation, decode context parallelism, the decode role's prefix cache."""

from __future__ import annotations

from dsabench.sglang.rules.rule import (
    V11,
    V12,
    V14,
    V18,
    V20,
    V23,
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


def allowed_kernels(s: Setting) -> frozenset[str]:
    """Kernels that HiSparse takes on this platform with this KV dtype (0.5.23 srt/arg_groups/hisparse_hook.py:18)."""
    if s.rocm and s.version >= V14:
        return frozenset({"tilelang", "aiter"} | ({"triton"} if s.version >= V20 else set()))
    if s.version < V12 or s.kernels.kv == "bfloat16":
        return frozenset({"flashmla_sparse"})
    return frozenset({"flashmla_kv"} | ({"flashinfer_sparse_mla"} if s.version >= V18 else set()))


def _other_kernel(s: Setting) -> bool:
    if not _on(s) or s.prefix_cache or s.kernels.kv not in {"bfloat16", "fp8_e4m3"}:
        return False
    return any(kernel is not None and kernel not in allowed_kernels(s) for kernel in s.kernels.pair)


def _tilelang_fp8(s: Setting) -> bool:
    return _on(s) and s.cuda and s.kernels.kv == "fp8_e4m3" and "tilelang" in s.kernels.pair


def _spec(s: Setting) -> bool:
    """Speculation in the version that first takes it together with HiSparse, and would start."""
    return _on(s) and s.speculation.algorithm is not None and not s.prefix_cache


def _legal_kernels(_: Setting) -> Change:
    return dict.fromkeys(("prefill_backend", "decode_backend"))


def _room(s: Setting) -> Change:
    return {"hisparse_device_buffer_size": 2 * max(s.hisparse.top_k, s.model.index_topk or 0)}


RULES = (
    Rule(
        id="HS09",
        severity="error",
        since=V23,
        condition="HiSparse with mixed chunks",
        knobs=("hisparse", "mixed_chunk"),
        when=lambda s: _on(s) and not s.prefix_cache and s.mixed_chunk,
        words=says("ValueError", "--enable-hisparse does not support --enable-mixed-chunk yet."),
        fix="mixed_chunk: false",
        change=without("mixed_chunk"),
        source="0.5.23=srt/arg_groups/hisparse_hook.py:84",
    ),
    Rule(
        id="HS10",
        severity="error",
        since=V23,
        condition="HiSparse with several drafts per step",
        unreachable="SP02 speaks first on the DSA backend",
        words=says(
            "ValueError",
            "The minimal HiSparse spec integration supports linear speculation only; use --speculative-eagle-topk 1.",
        ),
        fix="speculative_eagle_topk: 1",
        source="0.5.23=srt/arg_groups/hisparse_hook.py:120",
    ),
    Rule(
        id="HS11",
        severity="error",
        since=V23,
        condition="HiSparse with adaptive speculation",
        knobs=("hisparse", "speculative_adaptive"),
        when=lambda s: _spec(s) and s.speculation.adapts,
        words=says(
            "ValueError",
            "HiSparse speculative decoding uses statically sized swap state; --speculative-adaptive is not supported.",
        ),
        fix="speculative_adaptive: false",
        change=without("speculative_adaptive", "speculative_adaptive_config"),
        source="0.5.23=srt/arg_groups/hisparse_hook.py:125",
    ),
    Rule(
        id="HS12",
        severity="error",
        since=V23,
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
        since=V23,
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
        since=V23,
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
        id="HS15",
        severity="error",
        since=V23,
        condition="HiSparse with context parallelism of decode",
        knobs=("hisparse", "dcp_size"),
        when=lambda s: _on(s) and s.parallel.dcp > 1,
        words=says("ValueError", "DSA DCP does not support HiSparse or HiCache."),
        fix="dcp_size: 1",
        change=without("dcp_size"),
        source="0.5.23=srt/arg_groups/model_overrides/deepseek_v2.py:23",
    ),
    Rule(
        id="HS16",
        severity="error",
        since=V11,
        condition="HiSparse with a prefix cache on the decode role",
        knobs=("hisparse", "decode_prefix_cache"),
        when=lambda s: s.hisparse.on and s.role == "decode" and s.on("decode_prefix_cache"),
        words=says("ValueError", "--disaggregation-decode-enable-radix-cache is incompatible with --enable-hisparse"),
        fix="no decode_prefix_cache",
        change=without("decode_prefix_cache"),
        source="0.5.12=srt/server_args.py:4048; 0.5.16=srt/arg_groups/pd_disaggregation_hook.py:33; "
        "0.5.23=srt/arg_groups/pd_disaggregation_hook.py:102",
    ),
    Rule(
        id="HS17",
        severity="error",
        since=V23,
        condition="HiSparse with tilelang and fp8_e4m3 KV on NVIDIA",
        knobs=("hisparse", "kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=_tilelang_fp8,
        words=says("ValueError", "CUDA TileLang FP8 KV does not support HiSparse."),
        fix="leave the backends out",
        change=_legal_kernels,
        source="0.5.23=srt/arg_groups/overrides.py:692",
    ),
    Rule(
        id="HS18",
        severity="error",
        since=V23,
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
    Rule(
        id="HS19",
        severity="error",
        since=V23,
        condition="HiSparse with a KV cache spread over the ranks of the prefill role",
        knobs=("hisparse", "kv_cache_sharding"),
        when=lambda s: s.hisparse.on and s.on("kv_cache_sharding") and s.role == "prefill",
        words=says(
            "ValueError",
            "--enable-kv-cache-sharding does not support --enable-hisparse: HiSparse selects a non-sharded allocator and "
            "assumes each rank owns complete KV pages.",
        ),
        fix="no kv_cache_sharding",
        change=without("kv_cache_sharding"),
        source="0.5.23=srt/arg_groups/kv_shard_hook.py:200",
    ),
)
