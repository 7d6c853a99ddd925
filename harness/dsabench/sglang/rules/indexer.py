"""The lightning indexer and its top-k."""

from __future__ import annotations

from dsabench.sglang.rules.setting import Change, Setting
from dsabench.sglang.versions import V12, V20


def topk_beyond_the_kernel(s: Setting) -> bool:
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


def odd_pattern(s: Setting) -> bool:
    """An IndexCache pattern that does not fit the layers."""
    pattern = s.model.index_topk_pattern
    if pattern is None:
        return False
    return not pattern.startswith("F") or bool(set(pattern) - {"F", "S"}) or s.model.layers not in {None, len(pattern)}


def _never_dense(s: Setting) -> bool:
    """GLM-5 on Blackwell up to 0.5.12, whatever the threshold."""
    return s.version <= V12 and s.model.is_dsa and s.model.is_glm and (s.sm_major or 0) >= 10


def indexer_heads_not_128(s: Setting) -> bool:
    """An indexer whose heads are not 128 wide."""
    return s.model.is_dsa and (s.cuda or s.rocm) and s.model.index_head_dim != 128


def topk_not_2048_unfused(s: Setting) -> bool:
    """Another index_topk than 2048 with the top-k apart from the page table."""
    return s.uses_dsa and s.cuda and s.model.index_topk != 2048 and s.knobs.get("fuse_topk") is False


def threshold_above_topk(s: Setting) -> bool:
    """An MHA threshold above index_topk."""
    return (
        s.model.index_topk is not None
        and (s.number("mha_threshold_tokens") or 0) > s.model.index_topk
        and not _never_dense(s)
    )


def threshold_of_model(s: Setting) -> Change:
    """The model's index_topk."""
    return {"mha_threshold_tokens": s.model.index_topk}


def shares_with_offset(s: Setting) -> bool:
    """Layers share the indexer's result by an offset."""
    return s.model.shares_with_offset
