"""HiSparse: a hot KV buffer on the GPU, the rest in host memory."""

from __future__ import annotations

from dsabench.sglang.rules.rule import (
    V10,
    V11,
    V12,
    V14,
    V15,
    V18,
    V20,
    V23,
    Change,
    Rule,
    Words,
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
        id="HS01",
        severity="error",
        since=V10,
        condition="HiSparse on a model without sparse attention",
        knobs=("hisparse", "model_overrides"),
        when=lambda s: s.hisparse.on and not s.model.is_dsa,
        words=(
            Words(
                V10,
                "AssertionError",
                "--enable-hisparse is only supported for DSA (DeepSeek Sparse Attention) models now(e.g., DeepSeek V3.2, "
                "GLM-5). ",
            ),
            Words(
                V12,
                "AssertionError",
                "--enable-hisparse is only supported for DSA (DeepSeek Sparse Attention) models (e.g., DeepSeek V3.2, "
                "GLM-5) and DeepSeek V4 now. ",
            ),
            Words(
                V23,
                "AssertionError",
                "--enable-hisparse is only supported for DSA (DeepSeek Sparse Attention) models (e.g., DeepSeek V3.2, "
                "GLM-5), DeepSeek V4, and MiniMax M3 now. ",
            ),
        ),
        fix="no HiSparse",
        change=_OFF,
        source="0.5.10=srt/server_args.py:6184; 0.5.12=srt/arg_groups/hisparse_hook.py:62; "
        "0.5.16=srt/arg_groups/hisparse_hook.py:95; 0.5.23=srt/arg_groups/hisparse_hook.py:105",
    ),
    Rule(
        id="HS02",
        severity="error",
        since=V10,
        condition="HiSparse with the prefix cache (the decode role switches it off itself)",
        knobs=("hisparse", "prefix_cache"),
        when=lambda s: _on(s) and s.prefix_cache and s.role != "decode",
        words=says("AssertionError", "Hierarchical sparse attention currently requires --disable-radix-cache."),
        fix="prefix_cache: false",
        change=to(prefix_cache=False),
        source="0.5.10=srt/server_args.py:6189; 0.5.12=srt/arg_groups/hisparse_hook.py:68; "
        "0.5.16=srt/arg_groups/hisparse_hook.py:101; 0.5.23=srt/arg_groups/hisparse_hook.py:110",
    ),
    Rule(
        id="HS03",
        severity="error",
        since=V10,
        until=V11,
        condition="HiSparse with a backend other than flashmla_sparse",
        knobs=("hisparse", "prefill_backend", "decode_backend"),
        when=_other_kernel,
        words=says(
            "ValueError",
            "HiSparse requires flashmla_sparse NSA ‹phase› backend, but got --nsa-‹phase›-backend=‹the backend›. Please "
            "use --nsa-‹phase›-backend=flashmla_sparse or omit it.",
        ),
        fix="leave the backends out",
        change=_legal_kernels,
        source="0.5.10=srt/server_args.py:6198; 0.5.11=srt/server_args.py:6903",
    ),
    Rule(
        id="HS04",
        severity="error",
        since=V12,
        condition="HiSparse with a backend that it does not take: flashmla_sparse for bfloat16, flashmla_kv for fp8_e4m3",
        knobs=("hisparse", "kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=lambda s: _other_kernel(s) and not (s.version >= V23 and _tilelang_fp8(s)),
        words=(
            Words(
                V12,
                "ValueError",
                "HiSparse with --kv-cache-dtype={s.kernels.kv} requires --{s.prefix}-‹phase›-backend in ‹a list›, but got "
                "‹the backend›.",
            ),
            Words(
                V14,
                "ValueError",
                "HiSparse supports DSA ‹phase› backend(s) ‹a list› on this platform with "
                "--kv-cache-dtype={s.kernels.kv}, but got --dsa-‹phase›-backend=‹the backend›. Please use "
                "--dsa-‹phase›-backend=‹the default› or omit it.",
            ),
            Words(
                V18,
                "ValueError",
                "HiSparse supports DSA ‹phase› backend(s) ‹a list› on this platform with "
                "--kv-cache-dtype={s.kernels.kv}, but got --dsa-‹phase›-backend=‹the backend›. Please use one of ‹a "
                "list›, or omit the option to let SGLang pick a backend for this platform.",
            ),
        ),
        fix="leave the backends out",
        change=_legal_kernels,
        source="0.5.12=srt/arg_groups/hisparse_hook.py:92; 0.5.16=srt/arg_groups/hisparse_hook.py:56; "
        "0.5.23=srt/arg_groups/hisparse_hook.py:56",
    ),
    Rule(
        id="HS05",
        severity="error",
        since=V12,
        condition="HiSparse with a KV cache that is neither bfloat16 nor fp8_e4m3",
        unreachable="KV01 speaks first",
        words=(
            Words(
                V12,
                "ValueError",
                "HiSparse requires bfloat16 or fp8_e4m3 KV cache, but got --kv-cache-dtype=‹the dtype›. Please use "
                "--kv-cache-dtype=bfloat16 or fp8_e4m3.",
            ),
            Words(
                V14,
                "ValueError",
                "HiSparse requires one of ‹a list› KV cache dtypes, but got --kv-cache-dtype=‹the dtype›. Please use "
                "‹choices›.",
            ),
        ),
        fix="as KV01",
        source="0.5.12=srt/arg_groups/hisparse_hook.py:77; 0.5.16=srt/arg_groups/hisparse_hook.py:76; "
        "0.5.23=srt/arg_groups/hisparse_hook.py:74",
    ),
    Rule(
        id="HS06",
        severity="error",
        since=V10,
        condition="a HiSparse configuration that is no JSON",
        unreachable="the JSON is written from knobs",
        words=says("ValueError", "Failed to parse hisparse_config: ‹why›"),
        fix="none needed",
        source="0.5.12=srt/mem_cache/sparsity/factory.py:74; 0.5.16=srt/mem_cache/sparsity/factory.py:74; "
        "0.5.23=srt/mem_cache/sparsity/factory.py:75",
    ),
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
)

COMBINED = (
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
