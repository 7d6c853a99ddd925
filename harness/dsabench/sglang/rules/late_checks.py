"""Kernels that came late and run in few places: flashmla_sparse_q8, flashinfer_sparse_mla, triton_sparse_mla."""

from __future__ import annotations

from dsabench.sglang.rules.rule import V16, V17, V21, V22, Change, Rule, Words, says, to, without
from dsabench.sglang.rules.setting import Setting

_TRITON_HEADS = 32
_SM12_GLM = {"flashinfer_sparse_mla", "triton_sparse_mla"}


def _q8(s: Setting) -> bool:
    return s.uses_dsa and s.cuda and s.kernels.prefill == "flashmla_sparse_q8"


def _raw_pool(s: Setting) -> bool:
    return s.kernels.kv == "fp8_e4m3" and "trtllm" in s.kernels.pair


def _triton(s: Setting) -> bool:
    return s.uses_dsa and s.kernels.prefill == "triton_sparse_mla"


def _is_glm_sm12_fp8(s: Setting) -> bool:
    return s.model.is_glm and s.sm_major == 12 and s.kernels.kv == "fp8_e4m3"


def _union_misfit(s: Setting) -> bool:
    union, heads = s.number("triton_union"), s.heads_per_rank
    if not _triton(s) or not s.cuda or not union or heads is None or heads > _TRITON_HEADS:
        return False
    rows = heads * union
    return rows < 16 or rows > 32 or rows & (rows - 1) != 0


def _plain_prefill(s: Setting) -> Change:
    return {"prefill_backend": "flashmla_kv" if s.kernels.kv == "fp8_e4m3" else "flashmla_sparse"}


def _defaults(_: Setting) -> Change:
    return dict.fromkeys(("prefill_backend", "decode_backend"))


RULES = (
    Rule(
        id="BE23",
        severity="error",
        since=V16,
        until=V21,
        condition="flashmla_sparse_q8 with a KV cache other than fp8_e4m3",
        knobs=("prefill_backend", "kv_cache_dtype"),
        when=lambda s: _q8(s) and s.kernels.kv != "fp8_e4m3",
        words=says(
            "ValueError",
            "--dsa-prefill-backend flashmla_sparse_q8 is native FP8 and requires --kv-cache-dtype fp8_e4m3 (got "
            "kv_cache_dtype=‹the dtype›); use --dsa-prefill-backend flashmla_sparse for the bf16 path.",
        ),
        fix="kv_cache_dtype: fp8_e4m3",
        change=lambda s: {
            "kv_cache_dtype": "fp8_e4m3",
            "decode_backend": None if s.text("decode_backend") == "fa3" else s.text("decode_backend"),
        },
        source="0.5.16=srt/layers/attention/dsa_backend.py:460; 0.5.20=srt/layers/attention/dsa_backend.py:450",
    ),
    Rule(
        id="BE06",
        severity="error",
        since=V16,
        condition="flashmla_sparse_q8 on a GPU other than Hopper",
        knobs=("prefill_backend",),
        when=lambda s: (
            _q8(s)
            and s.sm_major != 9
            and not (s.version <= V21 and s.kernels.kv != "fp8_e4m3")
            and not (s.version >= V22 and _raw_pool(s))
        ),
        words=says(
            "ValueError",
            "--dsa-prefill-backend flashmla_sparse_q8 is SM90-only; got compute capability sm_{s.sm_major}x.",
        ),
        fix="leave the backends out",
        change=_defaults,
        source="0.5.16=srt/layers/attention/dsa_backend.py:469; 0.5.23=srt/layers/attention/dsa_backend.py:462",
    ),
    Rule(
        id="BE07",
        severity="error",
        since=V22,
        condition="flashmla_sparse_q8 with mixed chunks",
        knobs=("prefill_backend", "mixed_chunk"),
        when=lambda s: _q8(s) and s.sm_major == 9 and not _raw_pool(s) and s.mixed_chunk,
        words=says(
            "ValueError",
            "--dsa-prefill-backend flashmla_sparse_q8 does not support --enable-mixed-chunk: q8 prefill runs on RAGGED "
            "extend batches only.",
        ),
        fix="mixed_chunk: false",
        change=without("mixed_chunk"),
        source="0.5.23=srt/layers/attention/dsa_backend.py:471",
    ),
    Rule(
        id="BE09",
        severity="error",
        since=V16,
        condition="flashmla_sparse_q8 for decode, which the flag accepts and the backend refuses",
        knobs=("decode_backend",),
        when=lambda s: s.uses_dsa and s.cuda and s.kernels.decode == "flashmla_sparse_q8",
        words=(
            Words(
                V16,
                "ValueError",
                "--dsa-decode-backend flashmla_sparse_q8 is not supported: flashmla_sparse_q8 is a prefill-only backend. "
                "For FP8, use --dsa-prefill-backend flashmla_sparse_q8 together with --dsa-decode-backend flashmla_kv.",
            ),
            Words(
                V22,
                "ValueError",
                "--dsa-decode-backend flashmla_sparse_q8 is not supported: flashmla_sparse_q8 is a prefill-only backend. "
                "Pair it with a decode backend that reads the KV cache dtype (flashmla_kv for fp8_e4m3; tilelang or fa3 "
                "for bfloat16).",
            ),
        ),
        fix="leave decode_backend out",
        change=without("decode_backend"),
        source="0.5.16=srt/layers/attention/dsa_backend.py:478; 0.5.23=srt/layers/attention/dsa_backend.py:485",
    ),
    Rule(
        id="BE10",
        severity="error",
        since=V22,
        condition="flashmla_sparse_q8 on an fp8_e4m3 cache that trtllm keeps unpacked",
        knobs=("prefill_backend", "decode_backend", "kv_cache_dtype"),
        when=lambda s: _q8(s) and _raw_pool(s),
        words=says(
            "ValueError",
            "--dsa-prefill-backend flashmla_sparse_q8 requires either a bfloat16 KV cache or the packed fp8_e4m3 pool; "
            "got an unpacked fp8_e4m3 pool (a trtllm backend keeps the raw layout). Use --kv-cache-dtype bfloat16.",
        ),
        fix="decode_backend: flashmla_kv",
        change=to(decode_backend="flashmla_kv"),
        source="0.5.23=srt/layers/attention/dsa_backend.py:455",
    ),
    Rule(
        id="BE11",
        severity="error",
        since=V17,
        condition="flashinfer_sparse_mla elsewhere than GLM-5 with fp8_e4m3 KV on compute capability 12",
        knobs=("prefill_backend", "decode_backend", "kv_cache_dtype"),
        when=lambda s: (
            s.uses_dsa and (s.cuda or s.rocm) and "flashinfer_sparse_mla" in s.kernels.pair and not _is_glm_sm12_fp8(s)
        ),
        words=says(
            "ValueError",
            "flashinfer_sparse_mla supports only GLM DSA with FP8 KV cache on NVIDIA SM120/SM121; got "
            "model_arch='{s.model.architecture}', sm_major={s.sm_major}, kv_cache_dtype=‹the dtype›, "
            "prefill_impl='{s.kernels.prefill}', decode_impl='{s.kernels.decode}'.",
        ),
        fix="leave the backends out",
        change=_defaults,
        source="0.5.17=kernels/ops/attention/flash_mla_sm120.py:586; 0.5.23=kernels/ops/attention/flash_mla_sm120.py:696",
    ),
    Rule(
        id="BE12",
        severity="error",
        since=V17,
        condition="GLM-5 with fp8_e4m3 KV on compute capability 12 and a kernel other than flashinfer_sparse_mla",
        knobs=("prefill_backend", "decode_backend", "kv_cache_dtype"),
        when=lambda s: (
            s.uses_dsa
            and _is_glm_sm12_fp8(s)
            and (
                s.kernels.prefill not in (_SM12_GLM if s.version >= V22 else {"flashinfer_sparse_mla"})
                or s.kernels.decode != "flashinfer_sparse_mla"
            )
        ),
        words=(
            Words(
                V17,
                "ValueError",
                "GLM DSA with FP8 KV cache on NVIDIA SM120/SM121 supports only flashinfer_sparse_mla, but got ‹a list›.",
            ),
            Words(
                V22,
                "ValueError",
                "GLM DSA with FP8 KV cache on NVIDIA SM120/SM121 supports only flashinfer_sparse_mla (default) or "
                "triton_sparse_mla (prefill), but got ‹a list›.",
            ),
        ),
        fix="leave the backends out",
        change=_defaults,
        source="0.5.17=kernels/ops/attention/flash_mla_sm120.py:596; 0.5.23=kernels/ops/attention/flash_mla_sm120.py:709",
    ),
    Rule(
        id="BE13",
        severity="error",
        since=V22,
        condition="triton_sparse_mla on AMD",
        knobs=("prefill_backend",),
        when=lambda s: _triton(s) and s.rocm,
        words=says(
            "ValueError",
            "triton_sparse_mla is a CUDA prefill backend; on ROCm use the existing tilelang / aiter DSA paths.",
        ),
        fix="tilelang",
        change=to(prefill_backend="tilelang", decode_backend="tilelang"),
        source="0.5.23=srt/layers/attention/dsa_backend.py:370",
    ),
    Rule(
        id="BE14",
        severity="error",
        since=V22,
        condition="triton_sparse_mla below Hopper",
        knobs=("prefill_backend",),
        when=lambda s: _triton(s) and s.sm_major is not None and s.sm_major < 9,
        words=says("ValueError", "triton_sparse_mla requires SM90 (Hopper) or newer; got sm_major={s.sm_major}."),
        fix="another GPU",
        source="0.5.23=srt/layers/attention/dsa_backend.py:375",
    ),
    Rule(
        id="BE15",
        severity="error",
        since=V22,
        condition="triton_sparse_mla with more than 32 query heads per rank",
        knobs=("prefill_backend", "tp_size", "dp_size"),
        when=lambda s: _triton(s) and (s.sm_major or 0) >= 9 and (s.heads_per_rank or 0) > _TRITON_HEADS,
        words=says(
            "ValueError",
            "triton_sparse_mla is validated up to 32 query heads per rank; got num_q_heads={s.heads_per_rank}. Raise the "
            "attention TP degree or use another DSA prefill backend.",
        ),
        fix="a larger tp_size, or another prefill_backend",
        change=_plain_prefill,
        source="0.5.23=srt/layers/attention/dsa_backend.py:380",
    ),
    Rule(
        id="BE16",
        severity="error",
        since=V22,
        condition="a triton_union whose product with the heads per rank is no power of two from 16 to 32",
        knobs=("prefill_backend", "triton_union", "tp_size"),
        when=lambda s: _union_misfit(s) and (s.sm_major or 0) >= 9,
        words=says(
            "ValueError",
            "--dsa-triton-union {s.knobs[triton_union]} needs num_q_heads * union to be a power of two in [16, 32] (the "
            "union mma tile); got num_q_heads={s.heads_per_rank}, i.e. ‹rows› rows. Use a different group size or disable "
            "union.",
        ),
        fix="triton_union: 0",
        change=to(triton_union=0),
        source="0.5.23=srt/layers/attention/dsa_backend.py:400",
    ),
)
