"""Prefill and decode apart."""

from __future__ import annotations

from dsabench.runtimes.sglang.rules.rule import V9, V10, V11, V14, V23, Rule, says, to, without
from dsabench.runtimes.sglang.rules.setting import Setting


def _shards(s: Setting) -> bool:
    """Whether the check of DSA's own conditions is reached."""
    plain = s.speculation.algorithm is None and not s.hisparse.on
    return s.uses_dsa and s.on("kv_cache_sharding") and s.role == "prefill" and s.device is not None and plain


def _striped(s: Setting) -> bool:
    return (
        s.cuda
        and s.parallel.cp
        and s.parallel.cp_mode == "interleave"
        and s.parallel.attn_cp > 1
        and s.parallel.pp == 1
    )


RULES = (
    Rule(
        id="PD01",
        severity="error",
        since=V10,
        condition="a prefill role that transfers to nowhere",
        knobs=("transfer_backend",),
        when=lambda s: s.role == "prefill" and s.text("transfer_backend") == "fake",
        words=says("AssertionError", "Prefill server does not support 'fake' as the transfer backend"),
        fix="fake on the decode role only",
        change=to(transfer_backend="mooncake"),
        source="0.5.12=srt/server_args.py:4084; 0.5.16=srt/arg_groups/pd_disaggregation_hook.py:77; "
        "0.5.23=srt/arg_groups/pd_disaggregation_hook.py:147",
    ),
    Rule(
        id="PD02",
        severity="error",
        until=V9,
        condition="the decode role told the decode role's sizes",
        unreachable="there is no knob for them",
        flags=("--disaggregation-decode-tp", "--disaggregation-decode-dp"),
        words=says("AssertionError", "Cannot set --disaggregation-decode-tp for the decode engine."),
        fix="give them to the prefill role, or leave them out",
        source="0.5.9=srt/server_args.py:2550",
    ),
    Rule(
        id="PD03",
        severity="overwritten",
        condition="a prefix cache asked for on the decode role, which switches it off",
        knobs=("prefix_cache", "decode_prefix_cache"),
        when=lambda s: s.role == "decode" and s.on("prefix_cache") and not s.prefix_cache,
        words=says("silent", "the prefix cache is off"),
        fix="decode_prefix_cache: true (0.5.11 or later, experimental)",
        change=without("prefix_cache"),
        source="0.5.9=srt/server_args.py:2556; 0.5.23=srt/arg_groups/pd_disaggregation_hook.py:123",
    ),
    Rule(
        id="PD04",
        severity="advisory",
        since=V11,
        condition="a prefix cache on the decode role, which its authors call experimental",
        knobs=("decode_prefix_cache",),
        when=lambda s: s.role == "decode" and s.on("decode_prefix_cache"),
        words=says("log", "EXPERIMENTAL: Radix cache is enabled for decode server"),
        fix="no decode_prefix_cache",
        change=without("decode_prefix_cache"),
        source="0.5.12=srt/server_args.py:4056; 0.5.16=srt/arg_groups/pd_disaggregation_hook.py:44; "
        "0.5.23=srt/arg_groups/pd_disaggregation_hook.py:120",
    ),
    Rule(
        id="PD05",
        severity="error",
        since=V14,
        condition="a prefix cache on a decode role that receives nothing",
        knobs=("decode_prefix_cache", "transfer_backend"),
        when=lambda s: (
            s.role == "decode"
            and s.on("decode_prefix_cache")
            and not s.hisparse.on
            and s.text("transfer_backend") == "fake"
        ),
        words=says(
            "ValueError",
            "--disaggregation-decode-enable-radix-cache is incompatible with --disaggregation-transfer-backend fake",
        ),
        fix="no decode_prefix_cache",
        change=without("decode_prefix_cache"),
        source="0.5.14=srt/arg_groups/pd_disaggregation_hook.py:36; 0.5.23=srt/arg_groups/pd_disaggregation_hook.py:107",
    ),
    Rule(
        id="KS01",
        severity="error",
        since=V23,
        condition="a KV cache spread over the ranks elsewhere than on the prefill role",
        knobs=("kv_cache_sharding",),
        when=lambda s: s.on("kv_cache_sharding") and s.role != "prefill",
        words=says(
            "ValueError",
            "--enable-kv-cache-sharding is only supported on PD prefill workers: a rank's pool holds only its stripe of "
            "every cached page, which is incompatible with local decode.",
        ),
        fix="kv_cache_sharding on the prefill role only",
        change=without("kv_cache_sharding"),
        source="0.5.23=srt/arg_groups/kv_shard_hook.py:100",
    ),
    Rule(
        id="KS02",
        severity="error",
        since=V23,
        condition="a KV cache spread over the ranks without interleaved context parallelism, or with pipeline stages",
        knobs=("kv_cache_sharding", "prefill_cp", "cp_mode", "pp_size"),
        when=lambda s: _shards(s) and not _striped(s),
        words=says("ValueError", "DSA KV sharding requires CUDA interleave prefill CP > 1 and PP1."),
        fix="no kv_cache_sharding",
        change=without("kv_cache_sharding"),
        source="0.5.23=srt/arg_groups/kv_shard_hook.py:43",
    ),
    Rule(
        id="KS03",
        severity="error",
        since=V23,
        condition="a KV cache spread over the ranks with another kernel than trtllm or another dtype than fp8_e4m3",
        knobs=("kv_cache_sharding", "prefill_backend", "decode_backend", "kv_cache_dtype"),
        when=lambda s: (
            _shards(s) and _striped(s) and (s.kernels.pair != ("trtllm", "trtllm") or s.kernels.kv != "fp8_e4m3")
        ),
        words=says(
            "ValueError",
            "DSA KV sharding requires TRTLLM prefill/decode with fp8_e4m3 KV and page size 64.",
        ),
        fix="no kv_cache_sharding",
        change=without("kv_cache_sharding"),
        source="0.5.23=srt/arg_groups/kv_shard_hook.py:52",
    ),
)
