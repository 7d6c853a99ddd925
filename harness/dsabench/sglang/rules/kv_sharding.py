"""A KV cache that lies spread over the ranks of the prefill role: its layers, or its tokens."""

from __future__ import annotations

from dsabench.sglang.rules.rule import V16, V20, V23, Rule, Words, says, to, without
from dsabench.sglang.rules.setting import Setting

_MOONCAKE = {None, "mooncake", "mooncake_tcp"}


def _splits_layers(s: Setting) -> bool:
    return s.on("cache_layer_split") and s.role == "prefill"


def _interleaves(s: Setting) -> bool:
    return s.on("prefill_cp") and s.parallel.cp_mode == "interleave"


def _shards(s: Setting) -> bool:
    """Whether the check of DSA's own conditions is reached."""
    return s.uses_dsa and _reaches_backends(s) and s.device is not None and not s.on("two_batch_overlap")


def _reaches_backends(s: Setting) -> bool:
    """Whether the checks of every model are passed that stand before those of the attention backend."""
    return s.on("kv_cache_sharding") and s.role == "prefill" and _one_draft_layer(s) and not s.hisparse.on


def _one_draft_layer(s: Setting) -> bool:
    """No speculation, or the only one that goes with a spread cache."""
    spec = s.speculation
    return spec.algorithm is None or (
        spec.algorithm == "EAGLE" and s.model.is_glm and s.number("speculative_eagle_topk") == 1
    )


def _raw_rows(s: Setting) -> bool:
    return s.kernels.pair == ("trtllm", "trtllm") and s.kernels.kv == "fp8_e4m3"


def _striped(s: Setting) -> bool:
    return (
        s.cuda
        and s.parallel.cp
        and s.parallel.cp_mode == "interleave"
        and s.parallel.attn_cp > 1
        and s.parallel.pp == 1
    )


def rounds_chunks(s: Setting) -> bool:
    """Whether chunks of prefill are made whole pages, where they otherwise have to be."""
    return s.version >= V23 and s.on("kv_cache_sharding") and s.role == "prefill"


RULES = (
    Rule(
        id="LS01",
        severity="error",
        since=V16,
        condition="cache_layer_split on the prefill role without interleaved context parallelism",
        knobs=("cache_layer_split", "prefill_cp", "cp_mode"),
        when=lambda s: _splits_layers(s) and not _interleaves(s),
        words=(
            Words(
                V16,
                "ValueError",
                "--enable-dsa-cache-layer-split requires --enable-prefill-cp and --cp-strategy interleave (or legacy "
                "--enable-nsa-prefill-context-parallel with --nsa-prefill-cp-mode round-robin-split).",
            ),
            Words(
                V20,
                "ValueError",
                "--enable-dsa-cache-layer-split requires --enable-prefill-cp and --cp-strategy interleave.",
            ),
        ),
        fix="prefill_cp with cp_mode: interleave, or no cache_layer_split",
        change=without("cache_layer_split"),
        source="0.5.16=srt/server_args.py:4457; 0.5.23=srt/arg_groups/model_hook.py:385",
    ),
    Rule(
        id="LS02",
        severity="error",
        since=V16,
        condition="cache_layer_split elsewhere than on the prefill role",
        knobs=("cache_layer_split",),
        when=lambda s: s.model.is_dsa and s.on("cache_layer_split") and s.role != "prefill",
        words=says(
            "ValueError",
            "--enable-dsa-cache-layer-split is ‹only supported on PD prefill workers, or not on decode workers›. ‹why›",
        ),
        fix="cache_layer_split on the prefill role only",
        change=without("cache_layer_split"),
        source="0.5.16=srt/server_args.py:4442; 0.5.23=srt/arg_groups/model_hook.py:372",
    ),
    Rule(
        id="LS03",
        severity="error",
        since=V16,
        condition="cache_layer_split with pipeline stages",
        knobs=("cache_layer_split", "pp_size"),
        when=lambda s: _splits_layers(s) and _interleaves(s) and s.parallel.pp > 1,
        words=says(
            "ValueError",
            "--enable-dsa-cache-layer-split is not supported with pipeline parallelism (pp_size > 1) yet. ‹why›",
        ),
        fix="pp_size: 1",
        change=without("pp_size", "pp_layer_partition"),
        source="0.5.16=srt/server_args.py:4476; 0.5.23=srt/arg_groups/model_hook.py:404",
    ),
    Rule(
        id="LS04",
        severity="error",
        since=V16,
        condition="cache_layer_split with another transfer than mooncake",
        knobs=("cache_layer_split", "transfer_backend"),
        when=lambda s: _splits_layers(s) and _interleaves(s) and s.text("transfer_backend") not in _MOONCAKE,
        words=says(
            "ValueError",
            "--enable-dsa-cache-layer-split currently only supports the mooncake transfer backend (mooncake / "
            "mooncake_tcp). Got --disaggregation-transfer-backend '{s.knobs[transfer_backend]}'. mori/nixl support will be "
            "added later by the community.",
        ),
        fix="transfer_backend: mooncake",
        change=to(transfer_backend="mooncake"),
        source="0.5.16=srt/server_args.py:4470; 0.5.23=srt/arg_groups/model_hook.py:396",
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
        when=lambda s: _shards(s) and _striped(s) and not _raw_rows(s),
        words=says(
            "ValueError",
            "DSA KV sharding requires TRTLLM prefill/decode with fp8_e4m3 KV and page size 64.",
        ),
        fix="no kv_cache_sharding",
        change=without("kv_cache_sharding"),
        source="0.5.23=srt/arg_groups/kv_shard_hook.py:52",
    ),
    Rule(
        id="KS04",
        severity="error",
        since=V23,
        condition="a KV cache spread over the ranks with speculation other than GLM-5's own draft layer",
        knobs=("kv_cache_sharding", "speculative_algorithm", "speculative_eagle_topk"),
        when=lambda s: s.on("kv_cache_sharding") and s.role == "prefill" and not _one_draft_layer(s),
        words=says(
            "ValueError",
            "KV sharding supports speculative decoding only for GLM DSA single-layer NextN MTP with EAGLE and topk=1.",
        ),
        fix="no kv_cache_sharding",
        change=without("kv_cache_sharding"),
        source="0.5.23=srt/arg_groups/kv_shard_hook.py:116",
    ),
    Rule(
        id="KS05",
        severity="error",
        since=V23,
        condition="a KV cache spread over the ranks with two-batch overlap",
        knobs=("kv_cache_sharding", "two_batch_overlap"),
        when=lambda s: _reaches_backends(s) and s.on("two_batch_overlap"),
        words=says(
            "ValueError",
            "--enable-kv-cache-sharding does not support --enable-two-batch-overlap: the sharded pool's per-batch gather "
            "plan is a process-wide singleton, but TBO rebuilds attention metadata multiple times per extend forward and "
            "clobbers the plan.",
        ),
        fix="no kv_cache_sharding",
        change=without("kv_cache_sharding"),
        source="0.5.23=srt/arg_groups/kv_shard_hook.py:215",
    ),
    Rule(
        id="KS06",
        severity="error",
        since=V23,
        condition="a KV cache spread over the ranks with another transfer than mooncake, or with cache_layer_split",
        knobs=("kv_cache_sharding", "transfer_backend", "cache_layer_split"),
        when=lambda s: (
            _shards(s)
            and _striped(s)
            and _raw_rows(s)
            and (s.text("transfer_backend") not in _MOONCAKE or s.on("cache_layer_split"))
        ),
        words=says(
            "ValueError",
            "DSA KV sharding requires Mooncake, uncompressed index_kpool=1 and no DSA cache layer splitting.",
        ),
        fix="no kv_cache_sharding",
        change=without("kv_cache_sharding"),
        source="0.5.23=srt/arg_groups/kv_shard_hook.py:60",
    ),
    Rule(
        id="KS07",
        severity="error",
        since=V23,
        condition="a KV cache spread over the ranks on another attention backend than dsa",
        knobs=("kv_cache_sharding", "attention_backend"),
        when=lambda s: (
            _reaches_backends(s) and s.model.is_dsa and s.kernels.attention != "dsa" and not s.on("two_batch_overlap")
        ),
        words=says("ValueError", "DSA KV sharding requires the dsa attention backend."),
        fix="no kv_cache_sharding",
        change=without("kv_cache_sharding"),
        source="0.5.23=srt/arg_groups/kv_shard_hook.py:67",
    ),
    Rule(
        id="KS08",
        severity="error",
        since=V23,
        condition="a KV cache spread over the ranks with prefill that is not split",
        knobs=("kv_cache_sharding", "chunked_prefill_size"),
        when=lambda s: _shards(s) and _striped(s) and _raw_rows(s) and (s.number("chunked_prefill_size") or 1) < 0,
        words=says("ValueError", "--enable-kv-cache-sharding requires chunked prefill (--chunked-prefill-size > 0)."),
        fix="leave chunked_prefill_size out",
        change=without("chunked_prefill_size"),
        source="0.5.23=srt/arg_groups/kv_shard_hook.py:282",
    ),
    Rule(
        id="KS09",
        severity="overwritten",
        since=V23,
        condition="a KV cache spread over the ranks and a chunked_prefill_size of no whole pages",
        knobs=("kv_cache_sharding", "chunked_prefill_size"),
        when=lambda s: (
            rounds_chunks(s)
            and (s.number("chunked_prefill_size") or 0) > 0
            and (s.number("chunked_prefill_size") or 0) // s.parallel.attention_dp % 64 != 0
        ),
        words=says(
            "log",
            "Rounding --chunked-prefill-size up from ‹tokens› to ‹tokens› (a multiple of page_size "
            "= 64) for KV sharding.",
        ),
        fix="a multiple of 64 × the groups of the attention, or none",
        change=without("chunked_prefill_size"),
        source="0.5.23=srt/arg_groups/kv_shard_hook.py:320",
    ),
)
