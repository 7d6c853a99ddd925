"""The lightning indexer and its top-k."""

from __future__ import annotations

from dsabench.sglang.rules.rule import V10, V12, V14, V20, Rule, Words, says, without
from dsabench.sglang.rules.setting import Setting


def _beyond_the_kernel(s: Setting) -> bool:
    """Prefill takes the old kernel, which knows 2048 entries; from 0.5.20 a later one, up to these, where the indexer
    gives offsets into the batch's own KV and no page table.
    """
    topk = s.model.index_topk
    if topk is None or not s.uses_dsa or not s.cuda or s.text("topk_backend") not in {None, "sgl-kernel"}:
        return False
    if s.knobs.get("fuse_topk") is False or topk == 2048:
        return False
    return topk > 2048 or s.version < V20 or not _ragged(s)


def _ragged(s: Setting) -> bool:
    """0.5.23 srt/layers/attention/dsa_backend.py:4101. flashmla_auto turns to flashmla_sparse on Blackwell at times."""
    gathers = {"flashmla_sparse", "flashmla_sparse_q8", "triton_sparse_mla"}
    if s.kernels.prefill == "flashmla_auto" and (s.sm_major or 0) >= 10:
        return True
    packed = s.kernels.kv == "fp8_e4m3" and "trtllm" not in s.kernels.pair
    return s.kernels.prefill == "flashmla_sparse_q8" or (packed and s.kernels.prefill in gathers)


def _odd_pattern(s: Setting) -> bool:
    pattern = s.model.index_topk_pattern
    if pattern is None:
        return False
    return not pattern.startswith("F") or bool(set(pattern) - {"F", "S"}) or s.model.layers not in {None, len(pattern)}


def _never_dense(s: Setting) -> bool:
    """GLM-5 on Blackwell up to 0.5.12, whatever the threshold."""
    return s.version <= V12 and s.model.is_dsa and s.model.is_glm and (s.sm_major or 0) >= 10


RULES = (
    Rule(
        id="IX01",
        severity="error",
        condition="an indexer whose heads are not 128 wide",
        knobs=("model_overrides",),
        when=lambda s: s.model.is_dsa and (s.cuda or s.rocm) and s.model.index_head_dim != 128,
        words=says("AssertionError"),
        fix="leave index_head_dim at 128",
        source="0.5.9=srt/layers/attention/nsa/index_buf_accessor.py:361; "
        "0.5.12=srt/layers/attention/nsa/index_buf_accessor.py:428; 0.5.16=srt/mem_cache/memory_pool.py:4256; "
        "0.5.23=srt/mem_cache/memory_pool.py:5346",
    ),
    Rule(
        id="TK01",
        severity="error",
        until=V20,
        condition="an index_topk other than 2048 with the top-k apart from the page table's transform",
        knobs=("model_overrides", "fuse_topk"),
        when=lambda s: s.uses_dsa and s.cuda and s.model.index_topk != 2048 and s.knobs.get("fuse_topk") is False,
        words=says("AssertionError"),
        fix="leave index_topk at 2048",
        change=without("model_overrides"),
        source="0.5.9=srt/layers/attention/nsa/transform_index.py:55; "
        "0.5.12=srt/layers/attention/nsa/transform_index.py:55; 0.5.16=kernels/ops/attention/dsa/transform_index.py:139",
    ),
    Rule(
        id="SL09",
        severity="error",
        condition="an index_topk other than 2048 on the kernel package's top-k (from 0.5.20 a smaller one works where prefill "
        "gathers fp8_e4m3 KV, as flashmla_sparse does)",
        knobs=("model_overrides", "topk_backend"),
        when=_beyond_the_kernel,
        words=says("AssertionError", "‹the kernel› is only optimized for deepseek v3.2 model, where topk=2048"),
        fix="leave index_topk at 2048",
        change=without("model_overrides"),
        source="sgl_kernel 0.3.21 to sglang_kernel 0.4.10: sgl_kernel/top_k.py:36,71,109 to 146; "
        "0.5.20=srt/layers/attention/dsa/dsa_topk_backend.py:144",
    ),
    Rule(
        id="MH01",
        severity="advisory",
        since=V10,
        condition="an MHA threshold above index_topk: longer prompts are attended densely, which changes the numbers",
        knobs=("mha_threshold_tokens",),
        when=lambda s: (
            s.model.index_topk is not None
            and (s.number("mha_threshold_tokens") or 0) > s.model.index_topk
            and not _never_dense(s)
        ),
        words=says(
            "log",
            "Dense attention kv len threshold is manually set to {s.knobs[mha_threshold_tokens]} for DSA. Caution: This "
            "may cause performance regression if the threshold is larger than the index topk of model.",
        ),
        fix="measure accuracy beside speed, or stay at index_topk",
        change=lambda s: {"mha_threshold_tokens": s.model.index_topk},
        source="documents: usage guide, 'MHA prefill threshold relaxation'; 0.5.16=srt/server_args.py:4380; "
        "0.5.23=srt/arg_groups/model_hook.py:284",
    ),
    Rule(
        id="IX03",
        severity="error",
        since=V10,
        condition="an IndexCache pattern that is not one F or S for each layer, beginning with F",
        knobs=("index_topk_pattern",),
        when=_odd_pattern,
        words=(
            Words(
                V10,
                "silent",
                "an IndexError for a pattern that is too short; other letters count as F, what is too long is not read, "
                "and a first S has nothing to reuse",
            ),
            Words(
                V14,
                "silent",
                "letters other than S and layers beyond the pattern count as F, what is too long is not read, and a "
                "first S has nothing to reuse",
            ),
        ),
        fix="the model's own pattern, or none",
        change=without("index_topk_pattern"),
        source="0.5.10=srt/models/deepseek_v2.py:1213; 0.5.14=srt/configs/model_config.py:186",
    ),
    Rule(
        id="IX04",
        severity="error",
        until=V12,
        condition="a model some of whose layers have no indexer (GLM-5.2 and later), in a version that shares other layers' results",
        when=lambda s: s.model.shares_with_offset,
        words=says(
            "silent",
            "it does not read index_skip_topk_offset: layers without weights for an indexer compute one, and layers with "
            "them reuse another layer's result",
        ),
        fix="sglang 0.5.13 or later",
        source="sources: 0.5.12 srt/models/deepseek_v2.py:1438; 0.5.13 srt/models/deepseek_v2.py:1566",
    ),
)
