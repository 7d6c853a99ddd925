"""Which sparse attention kernel runs where, on which KV dtype, for which phase."""

from __future__ import annotations

from dsabench.sglang.rules.rule import (
    V9,
    V10,
    V12,
    V13,
    V16,
    V17,
    V20,
    V23,
    Change,
    Rule,
    Words,
    says,
    to,
)
from dsabench.sglang.rules.setting import Setting
from dsabench.sglang.versions import Version

_FLASHMLA = {"flashmla_sparse", "flashmla_kv", "flashmla_auto"}
_ROCM = {"tilelang", "aiter"}

KERNELS: tuple[tuple[Version, frozenset[str]], ...] = (
    (V9, frozenset({*_FLASHMLA, "fa3", "tilelang", "aiter", "trtllm"})),
    (V16, frozenset({"flashmla_sparse_q8"})),
    (V17, frozenset({"flashinfer_sparse_mla"})),
    (V20, frozenset({"triton"})),
    (V23, frozenset({"intel_xpu", "triton_sparse_mla"})),
)
"""Values of the two flags by the version that brought them; triton_sparse_mla for prefill only."""


def kernels_of(version: Version) -> frozenset[str]:
    """What the prefill flag takes in that version."""
    return frozenset().union(*(names for since, names in KERNELS if since <= version))


def _not_a_choice(s: Setting) -> bool:
    known = kernels_of(s.version)
    prefill, decode = s.text("prefill_backend"), s.text("decode_backend")
    return (prefill is not None and prefill not in known) or (
        decode is not None and decode not in known - {"triton_sparse_mla"}
    )


def _wrong_architecture(s: Setting) -> bool:
    major = s.sm_major
    if major is None or not s.uses_dsa:
        return False
    chosen = set(s.kernels.pair)
    return (
        ("fa3" in chosen and major != 9 and (s.version < V12 or major == 8))
        or ("trtllm" in chosen and major < 10)
        or (bool(_FLASHMLA & chosen) and major not in {9, 10})
        or s.kernels.decode == "aiter"
        or (s.kernels.prefill == "aiter" and s.version > V9)
    )


def _fa3_elsewhere(s: Setting) -> bool:
    """Its guard lets sm80 through, for which no sparse kernel is made: `_wrong_architecture`."""
    return s.uses_dsa and s.sm_major not in {None, 8, 9} and "fa3" in s.kernels.pair


def _cuda_kernel_on_rocm(s: Setting) -> bool:
    allowed = _ROCM | ({"triton"} if s.version >= V20 else set())
    return s.uses_dsa and s.rocm and not set(s.kernels.pair) <= allowed


def _reaches_flashmla_sparse(s: Setting) -> bool:
    auto = s.kernels.prefill == "flashmla_auto" and (s.kernels.kv == "bfloat16" or (s.sm_major or 0) >= 10)
    return "flashmla_sparse" in s.kernels.pair or auto


def _cannot_pad(s: Setting) -> bool:
    heads = s.heads_per_rank
    if heads is None or heads < 1 or not s.uses_dsa or not s.cuda or not _reaches_flashmla_sparse(s):
        return False
    width = 128 if (s.sm_major or 0) >= 10 else 64
    return heads % width != 0 and width % heads != 0


def _tilelang_fp8(s: Setting) -> bool:
    own_kernels = s.model.is_glm and s.sm_major == 12  # its choice ends before the check (BE12)
    return s.model.is_dsa and s.cuda and s.kernels.kv == "fp8_e4m3" and "tilelang" in s.kernels.pair and not own_kernels


def _defaults_for(_: Setting) -> Change:
    return dict.fromkeys(("prefill_backend", "decode_backend"))


def _fits_rocm(s: Setting) -> Change:
    kernel = "triton" if s.version >= V20 else "tilelang"
    return {"prefill_backend": kernel, "decode_backend": kernel}


RULES = (
    Rule(
        id="FL04",
        severity="error",
        condition="a sparse backend that this version does not know",
        knobs=("prefill_backend", "decode_backend"),
        when=_not_a_choice,
        words=says("argparse", "argument ‹flag›: invalid choice: ‹the backend› (choose from ‹a list›)"),
        fix="one of the version's own kernels",
        change=_defaults_for,
        source="0.5.9=srt/server_args.py:162; 0.5.12=srt/server_args.py:249; 0.5.16=srt/server_args.py:326; "
        "0.5.23=srt/arg_groups/fields/exec_.py:299",
    ),
    Rule(
        id="BE01",
        severity="error",
        since=V20,
        condition="triton on NVIDIA",
        knobs=("prefill_backend", "decode_backend"),
        when=lambda s: s.model.is_dsa and s.cuda and "triton" in s.kernels.pair,
        words=says(
            "ValueError",
            "The triton DSA backend is only supported on ROCm/HIP. Pick an alternative DSA backend for CUDA "
            "(flashmla_kv on Hopper, trtllm on Blackwell).",
        ),
        fix="leave the backends out",
        change=_defaults_for,
        source="0.5.20=srt/arg_groups/overrides.py:634; 0.5.23=srt/arg_groups/overrides.py:564",
    ),
    Rule(
        id="BE02",
        severity="error",
        since=V23,
        condition="fp8_e4m3 KV on NVIDIA with tilelang for one of prefill and decode only",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=lambda s: _tilelang_fp8(s) and not s.hisparse.on and s.kernels.pair != ("tilelang", "tilelang"),
        words=says(
            "ValueError",
            "CUDA TileLang FP8 KV requires both DSA backends to be tilelang; raw and scaled FP8 KV layouts cannot be "
            "mixed.",
        ),
        fix="tilelang for both",
        change=to(prefill_backend="tilelang", decode_backend="tilelang"),
        source="0.5.23=srt/arg_groups/overrides.py:573",
    ),
    Rule(
        id="BE25",
        severity="error",
        since=V17,
        until=V20,
        condition="fp8_e4m3 KV on NVIDIA with tilelang, which 0.5.17 to 0.5.20 refuse (0.5.23 takes it for both)",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=_tilelang_fp8,
        words=(
            Words(
                V17,
                "ValueError",
                "The tilelang DSA prefill/decode kernels only support an fp8_e4m3 KV cache on ROCm/HIP; on CUDA they "
                "require a bfloat16 KV cache. Use --kv-cache-dtype bfloat16 with the tilelang backend, or keep "
                "--kv-cache-dtype fp8_e4m3 and pick an fp8-capable DSA backend (flashmla_kv on Hopper, trtllm on "
                "Blackwell).",
            ),
            Words(
                V20,
                "ValueError",
                "The tilelang DSA prefill/decode kernels only support an fp8_e4m3 KV cache on ROCm/HIP; on CUDA they "
                "require a bfloat16 KV cache. Use --kv-cache-dtype bfloat16, or keep --kv-cache-dtype fp8_e4m3 and pick "
                "an fp8-capable DSA backend (flashmla_kv on Hopper, trtllm on Blackwell).",
            ),
        ),
        fix="leave the backends out",
        change=_defaults_for,
        source="0.5.17=srt/arg_groups/overrides.py:1569; 0.5.20=srt/arg_groups/overrides.py:643",
    ),
    Rule(
        id="BE03",
        severity="error",
        since=V23,
        condition="fp8_e4m3 KV on NVIDIA with tilelang and decode context parallelism",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend", "dcp_size"),
        when=lambda s: _tilelang_fp8(s) and s.kernels.pair == ("tilelang", "tilelang") and s.parallel.dcp > 1,
        words=says("ValueError", "CUDA TileLang FP8 KV does not support --dcp-size > 1."),
        fix="dcp_size: 1",
        change=to(dcp_size=1),
        source="0.5.23=srt/arg_groups/overrides.py:577",
    ),
    Rule(
        id="BE04",
        severity="error",
        since=V23,
        condition="fp8_e4m3 KV with tilelang below compute capability 8.9",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=lambda s: _tilelang_fp8(s) and s.kernels.pair == ("tilelang", "tilelang") and (s.sm or (9, 0)) < (8, 9),
        words=says("ValueError", "CUDA TileLang FP8 KV requires SM89 or newer."),
        fix="kv_cache_dtype: bfloat16",
        change=to(kv_cache_dtype="bfloat16"),
        source="0.5.23=srt/arg_groups/overrides.py:583",
    ),
    Rule(
        id="BE17",
        severity="error",
        since=V20,
        condition="a model with learnable attention sinks and a backend other than flashmla_sparse",
        knobs=("prefill_backend", "decode_backend", "model_overrides"),
        when=lambda s: (
            s.model.is_dsa
            and (s.cuda or s.rocm)
            and s.model.learnable_sink
            and any(s.text(name) not in {None, "flashmla_sparse"} for name in ("prefill_backend", "decode_backend"))
        ),
        words=says(
            "ValueError",
            "{s.model.architecture} uses learnable attention sinks and requires ‹option› 'flashmla_sparse'; got "
            "‹the backend›",
        ),
        fix="flashmla_sparse for both",
        change=to(prefill_backend="flashmla_sparse", decode_backend="flashmla_sparse"),
        source="0.5.20=srt/arg_groups/overrides.py:718; 0.5.23=srt/arg_groups/overrides.py:651",
    ),
    Rule(
        id="BE18",
        severity="error",
        condition="flashmla_sparse with a number of heads per rank that cannot be padded to 64 (Hopper) or 128 (Blackwell)",
        knobs=("prefill_backend", "decode_backend", "tp_size", "model_overrides"),
        when=_cannot_pad,
        words=says(
            "AssertionError",
            "num_heads {s.heads_per_rank} cannot be padded to ‹64 or 128›. TP size may be too large for this model.",
        ),
        fix="a tp_size that leaves 64, 32, 16 or 8 heads per rank",
        source="0.5.9=srt/layers/attention/nsa_backend.py:1682; 0.5.12=srt/layers/attention/nsa_backend.py:1754; "
        "0.5.16=srt/layers/attention/dsa_backend.py:2340; 0.5.23=srt/layers/attention/dsa_backend.py:2830",
    ),
    Rule(
        id="BE19",
        severity="error",
        condition="flashmla_auto for decode, which does not implement it",
        knobs=("decode_backend",),
        when=lambda s: s.uses_dsa and s.kernels.decode == "flashmla_auto",
        words=(
            Words(V9, "AssertionError", "Unsupported self.nsa_decode_impl = ‹the kernel›"),
            Words(V13, "AssertionError", "Unsupported self.dsa_decode_impl = ‹the kernel›"),
            Words(V20, "AssertionError", "Unsupported dsa_impl = ‹the kernel›"),
        ),
        fix="leave the backend out",
        change=_defaults_for,
        source="0.5.9=srt/layers/attention/nsa_backend.py:1621; 0.5.12=srt/layers/attention/nsa_backend.py:1693; "
        "0.5.16=srt/layers/attention/dsa_backend.py:2279; 0.5.23=srt/layers/attention/dsa_backend.py:2534",
    ),
    Rule(
        id="BE24",
        severity="error",
        until=V9,
        condition="aiter for prefill, which 0.5.9 does not implement",
        knobs=("prefill_backend",),
        when=lambda s: s.uses_dsa and s.kernels.prefill == "aiter",
        words=says("ValueError", "Unsupported nsa_impl = ‹the kernel›"),
        fix="leave the backend out",
        change=_defaults_for,
        source="0.5.9=srt/layers/attention/nsa_backend.py:1480",
    ),
    Rule(
        id="BE20",
        severity="error",
        condition="on AMD a kernel made for NVIDIA, also by default: 0.5.9 always, later when one of the two is set alone",
        knobs=("prefill_backend", "decode_backend"),
        when=_cuda_kernel_on_rocm,
        words=says("silent", "nothing at launch; the kernel cannot be imported or started at the first batch"),
        fix="tilelang for both (triton from 0.5.20)",
        change=_fits_rocm,
        source="0.5.9=srt/server_args.py:1154; 0.5.10=srt/server_args.py:1459; 0.5.16=srt/arg_groups/overrides.py:1290; "
        "documents: usage guide, 'TP on MI30x/MI35x'",
    ),
    Rule(
        id="SL03",
        severity="error",
        condition="a kernel not made for this GPU: fa3 needs Hopper (from 0.5.12 on: SL10), trtllm Blackwell, flashmla one "
        "of them, aiter AMD",
        knobs=("prefill_backend", "decode_backend"),
        when=_wrong_architecture,
        words=says("silent", "nothing at launch; the kernel cannot be imported or started at the first batch"),
        fix="leave the backends out",
        change=_defaults_for,
        source="documents: usage guide, 'Choices of Attention Kernels'; 0.5.23=srt/arg_groups/overrides.py:601",
    ),
    Rule(
        id="SL10",
        severity="error",
        since=V12,
        condition="fa3 on another GPU than a Hopper",
        knobs=("prefill_backend", "decode_backend"),
        when=_fa3_elsewhere,
        words=says("NotImplementedError", "flash_attn at sgl-kernel is only supported on sm90 and above"),
        fix="leave the backends out",
        change=_defaults_for,
        source="0.5.12=jit_kernel/flash_attention_v3.py:136; 0.5.16=jit_kernel/flash_attention_v3.py:137; "
        "0.5.23=kernels/ops/attention/flash_attention_v3.py:137",
    ),
    Rule(
        id="BE21",
        severity="advisory",
        since=V10,
        condition="aiter for prefill, which the documents know for decode only",
        knobs=("prefill_backend",),
        when=lambda s: s.rocm and s.kernels.prefill == "aiter",
        words=says("document", "aiter is named as a decode kernel only; from 0.5.10 the code takes it for prefill too"),
        fix="tilelang for prefill",
        change=lambda s: {"prefill_backend": "tilelang", "decode_backend": s.kernels.decode},
        source="documents: usage guide, 'Choices of Attention Kernels'; 0.5.10=srt/layers/attention/nsa_backend.py:1451",
    ),
    Rule(
        id="BE22",
        severity="advisory",
        condition="flashmla_auto where it does not choose: always flashmla_kv on Hopper with fp8_e4m3, flashmla_sparse "
        "with bfloat16",
        knobs=("prefill_backend", "kv_cache_dtype"),
        when=lambda s: (
            s.uses_dsa
            and s.text("prefill_backend") == "flashmla_auto"
            and s.cuda
            and (s.sm_major == 9 or s.kernels.kv == "bfloat16")
        ),
        words=says("document", "the ratio of KV to query tokens is looked at on Blackwell with fp8_e4m3 only"),
        fix="name the kernel",
        change=lambda s: {"prefill_backend": "flashmla_kv" if s.kernels.kv == "fp8_e4m3" else "flashmla_sparse"},
        source="documents: usage guide, 'Choices of Attention Kernels'; 0.5.9=srt/layers/attention/nsa_backend.py:2070; "
        "0.5.23=srt/layers/attention/dsa_backend.py:4093",
    ),
)
