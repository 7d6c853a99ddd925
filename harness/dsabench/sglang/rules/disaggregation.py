"""Prefill and decode apart."""

from __future__ import annotations

from dsabench.sglang.rules.rule import (
    V9,
    V10,
    V11,
    V12,
    V13,
    V14,
    V17,
    V19,
    V20,
    V23,
    Rule,
    Words,
    says,
    to,
    without,
)
from dsabench.sglang.rules.setting import Kernels, Setting


def _is_raw(kernels: Kernels, role: str, s: Setting) -> bool:
    """Whether fp8 rows stand as they are (576 bytes) and not with scales (656).

    0.5.16 srt/mem_cache/kv_cache_configurator.py:1836; 0.5.20 srt/mem_cache/kv_cache_configurator.py:2561.
    """
    running = kernels.decode if role == "decode" else kernels.prefill
    by_trtllm = running == "trtllm" if s.version >= V20 else "trtllm" in kernels.pair
    return by_trtllm or (s.version >= V23 and kernels.pair == ("tilelang", "tilelang"))


def _other_rows(s: Setting) -> bool:
    """Whether decode receives rows of a layout that is not its own."""
    if s.role != "decode" or s.peer is None or not s.uses_dsa or not s.cuda:
        return False
    both_fp8 = s.kernels.kv == s.peer.kv == "fp8_e4m3"
    return both_fp8 and _is_raw(s.peer, "prefill", s) != _is_raw(s.kernels, "decode", s)


def _other_dtype(s: Setting) -> bool:
    known = s.peer is not None and None not in {s.peer.kv, s.kernels.kv}
    return s.role == "decode" and known and s.peer is not None and s.peer.kv != s.kernels.kv


def _keeps_prefixes(s: Setting) -> bool:
    return s.role == "decode" and s.on("decode_prefix_cache") and not s.hisparse.on


def _transfer_refused(s: Setting) -> bool:
    """Whether the decode role's prefix cache does not go with the transfer, which is mooncake unless set."""
    transfer = s.text("transfer_backend") or "mooncake"
    if s.version >= V14:
        return transfer == "fake"
    return transfer not in ({"nixl"} if s.version < V12 else {"nixl", "mooncake", "mooncake_tcp"})


def _splits_decode(s: Setting) -> bool:
    return s.role == "decode" and s.parallel.dcp > 1


def _splittable(s: Setting) -> set[str | None]:
    """Transfers that lay a decode role's rows out anew."""
    return {None, "mooncake", "mooncake_tcp", "nixl"} | ({"fake"} if s.version >= V19 else set())


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
        id="PD06",
        severity="error",
        condition="a decode role whose KV cache has another dtype than the prefill role's",
        knobs=("kv_cache_dtype",),
        when=_other_dtype,
        words=(
            Words(V9, "silent", "nothing at launch; decode reads rows of another size than prefill sends"),
            Words(
                V10,
                "RuntimeError",
                "KV cache dtype mismatch: prefill server has kv_cache_dtype={s.peer.kv}, but decode server has "
                "kv_cache_dtype={s.kernels.kv}. Both servers must use the same --kv-cache-dtype value.",
            ),
        ),
        fix="one kv_cache_dtype for both roles",
        change=lambda s: {"kv_cache_dtype": s.peer.kv if s.peer else None},
        source="0.5.10=srt/disaggregation/common/conn.py:239; 0.5.16=srt/disaggregation/common/conn.py:475; "
        "0.5.23=srt/disaggregation/common/conn.py:1332",
    ),
    Rule(
        id="PD07",
        severity="error",
        condition="fp8_e4m3 rows that trtllm keeps raw on one role and the other role's kernel reads packed",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=_other_rows,
        words=says(
            "silent", "nothing at launch; rows of 576 bytes meet rows of 656, and decode reads what was never written"
        ),
        fix="trtllm on both roles, or on neither",
        change=lambda s: {} if s.peer is None else {"prefill_backend": s.peer.prefill, "decode_backend": s.peer.decode},
        source="0.5.16=srt/mem_cache/kv_cache_configurator.py:1836; 0.5.23=srt/mem_cache/kv_cache_configurator.py:3425",
    ),
    Rule(
        id="PD08",
        severity="error",
        since=V11,
        condition="a prefix cache on the decode role with speculation (in 0.5.23 with another than EAGLE)",
        knobs=("decode_prefix_cache", "speculative_algorithm"),
        when=lambda s: (
            _keeps_prefixes(s)
            and not _transfer_refused(s)
            and s.speculation.algorithm not in ({None} if s.version < V23 else {None, "EAGLE", "EAGLE3"})
        ),
        words=says(
            "ValueError",
            "--disaggregation-decode-enable-radix-cache is incompatible with speculative decoding "
            "(--speculative-algorithm {s.knobs[speculative_algorithm]})",
        ),
        fix="no decode_prefix_cache",
        change=without("decode_prefix_cache"),
        source="0.5.12=srt/server_args.py:4061; 0.5.16=srt/arg_groups/pd_disaggregation_hook.py:43; "
        "0.5.20=srt/arg_groups/pd_disaggregation_hook.py:92; 0.5.23=srt/arg_groups/speculative_hook.py:170",
    ),
    Rule(
        id="PD09",
        severity="error",
        since=V11,
        until=V13,
        condition="a prefix cache on the decode role with another transfer than nixl (0.5.12 and 0.5.13: or mooncake)",
        knobs=("decode_prefix_cache", "transfer_backend"),
        when=lambda s: _keeps_prefixes(s) and s.version <= V13 and _transfer_refused(s),
        words=(
            Words(
                V11,
                "ValueError",
                "--disaggregation-decode-enable-radix-cache currently requires --disaggregation-transfer-backend nixl",
            ),
            Words(
                V12,
                "ValueError",
                "--disaggregation-decode-enable-radix-cache currently requires --disaggregation-transfer-backend in "
                "('nixl', 'mooncake'), but got '{s.knobs[transfer_backend]}'",
            ),
        ),
        fix="transfer_backend: nixl",
        change=to(transfer_backend="nixl"),
        source="0.5.11=srt/server_args.py:3748; 0.5.12=srt/server_args.py:4053; "
        "0.5.13=srt/arg_groups/pd_disaggregation_hook.py:36",
    ),
    Rule(
        id="PD10",
        severity="error",
        since=V17,
        until=V20,
        condition="context parallelism of decode on the decode role with another transfer than mooncake or nixl (from 0.5.19 "
        "on, or fake)",
        knobs=("dcp_size", "transfer_backend"),
        when=lambda s: _splits_decode(s) and s.text("transfer_backend") not in _splittable(s),
        words=(
            Words(
                V17,
                "ValueError",
                "PD decode DCP requires --disaggregation-transfer-backend mooncake or nixl, got "
                "'{s.knobs[transfer_backend]}'.",
            ),
            Words(
                V19,
                "ValueError",
                "PD decode DCP requires --disaggregation-transfer-backend mooncake, nixl, or fake for synthetic "
                "benchmarking, got '{s.knobs[transfer_backend]}'.",
            ),
        ),
        fix="transfer_backend: mooncake",
        change=to(transfer_backend="mooncake"),
        source="0.5.17=srt/arg_groups/pd_disaggregation_hook.py:40; 0.5.20=srt/arg_groups/pd_disaggregation_hook.py:62",
    ),
    Rule(
        id="PD11",
        severity="error",
        since=V17,
        until=V20,
        condition="context parallelism of decode on a decode role that keeps prefixes",
        knobs=("dcp_size", "decode_prefix_cache"),
        when=lambda s: (
            _splits_decode(s) and s.text("transfer_backend") in _splittable(s) and s.on("decode_prefix_cache")
        ),
        words=says(
            "ValueError",
            "PD decode DCP currently requires chunk cache; --disaggregation-decode-enable-radix-cache is not supported.",
        ),
        fix="no decode_prefix_cache",
        change=without("decode_prefix_cache"),
        source="0.5.17=srt/arg_groups/pd_disaggregation_hook.py:46; 0.5.20=srt/arg_groups/pd_disaggregation_hook.py:68",
    ),
)
