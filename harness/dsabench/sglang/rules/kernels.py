"""Attention kernels: the GPU that they run on, the cache that they read."""

from __future__ import annotations

from dsabench.model.topology import RoleName
from dsabench.sglang.rules.setting import Change, Kernels, Setting
from dsabench.sglang.versions import V9, V12, V20, V21, V22, Version

_FLASHMLA = {"flashmla_sparse", "flashmla_kv", "flashmla_auto"}

_ROCM = {"tilelang", "aiter"}


def kernel_not_made_for_gpu(s: Setting) -> bool:
    """A sparse kernel on a GPU that it was not compiled for."""
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


def fa3_off_hopper(s: Setting) -> bool:
    """Its guard lets sm80 through, for which no sparse kernel is made: `kernel_not_made_for_gpu`."""
    return s.uses_dsa and s.sm_major not in {None, 8, 9} and "fa3" in s.kernels.pair


def cuda_kernel_on_rocm(s: Setting) -> bool:
    """A kernel made for NVIDIA on AMD."""
    allowed = _ROCM | ({"triton"} if s.version >= V20 else set())
    return s.uses_dsa and s.rocm and not set(s.kernels.pair) <= allowed


def _reaches_flashmla_sparse(s: Setting) -> bool:
    auto = s.kernels.prefill == "flashmla_auto" and (s.kernels.kv == "bfloat16" or (s.sm_major or 0) >= 10)
    return "flashmla_sparse" in s.kernels.pair or auto


def heads_cannot_be_padded(s: Setting) -> bool:
    """Heads per rank that flashmla_sparse cannot pad to its block."""
    heads = s.heads_per_rank
    if heads is None or heads < 1 or not s.uses_dsa or not s.cuda or not _reaches_flashmla_sparse(s):
        return False
    width = 128 if (s.sm_major or 0) >= 10 else 64
    return heads % width != 0 and width % heads != 0


def without_what_is_named(s: Setting) -> Change:
    """Without the kernels that are named; where none is, dcp_size brought them (0.5.23 takes trtllm for it)."""
    named = [name for name in ("prefill_backend", "decode_backend") if s.asked(name)]
    return dict.fromkeys(named or ["dcp_size"])


def fits_rocm(s: Setting) -> Change:
    """A kernel made for AMD, for both."""
    kernel = "triton" if s.version >= V20 else "tilelang"
    return {"prefill_backend": kernel, "decode_backend": kernel}


PACKED_ROW = 656
"""Bytes of 512 numbers in fp8, 4 scales in fp32 and 64 rotated numbers in bfloat16."""

BF16_ROW = 1152

INDEX_ROW = 132
"""Bytes of an indexer's key: 128 numbers in fp8 and a scale in fp32."""

_BF16_DECODE = {"fa3", "flashmla_sparse"}


def _running(s: Setting) -> tuple[str | None, str | None]:
    """Prefill and decode kernel as far as they run: half a pair has one phase, but drafts extend with decode's kernel."""
    prefill = None if s.role == "decode" else s.kernels.prefill
    decode = None if s.role == "prefill" and s.speculation.algorithm is None else s.kernels.decode
    return prefill, decode


def bf16_kernel_on_fp8(s: Setting) -> bool:
    """A kernel that reads bfloat16 alone, on an fp8 cache."""
    prefill, decode = _running(s)
    return s.uses_dsa and s.cuda and s.kernels.kv == "fp8_e4m3" and (prefill == "fa3" or decode in _BF16_DECODE)


def reads_bf16_packed(s: Setting) -> bool:
    """Whether a bfloat16 pool is read by flashmla_kv."""
    return s.uses_dsa and s.cuda and s.kernels.kv == "bfloat16" and "flashmla_kv" in _running(s)


def prefill_without_its_plan(s: Setting) -> bool:
    """0.5.9 and 0.5.10 plan the kernel's work, for prefill too, only where decode runs it (nsa_backend.py:650, 640)."""
    prefill, _ = _running(s)
    packed = prefill == "flashmla_kv" or (prefill == "flashmla_auto" and s.kernels.kv == "fp8_e4m3")
    return s.uses_dsa and s.cuda and packed and s.kernels.decode != "flashmla_kv"


def reads_fp8(s: Setting) -> Change:
    """Kernels that read fp8."""
    prefill = s.text("prefill_backend")
    return {
        "kv_cache_dtype": s.kernels.kv,
        "prefill_backend": prefill if prefill == "flashmla_sparse" else None,
        "decode_backend": None,
    }


def sparse_for_packed(s: Setting) -> Change:
    """flashmla_sparse in the place of flashmla_kv."""
    prefill, decode = ("flashmla_sparse" if kernel == "flashmla_kv" else kernel for kernel in s.kernels.pair)
    return {"prefill_backend": prefill, "decode_backend": decode}


def plan_for_prefill(s: Setting) -> Change:
    """Kernels that are planned."""
    if s.kernels.kv == "fp8_e4m3":
        return {"decode_backend": "flashmla_kv"}
    return {"prefill_backend": "flashmla_sparse"}


def one_raw(s: Setting) -> bool:
    """One kernel keeps rows of 576 bytes, the other reads packed ones of 656.

    A half of disaggregation runs one of the two; up to 0.5.19 the other still decides on the rows.
    """
    if not s.uses_dsa or s.kernels.kv != "fp8_e4m3" or s.kernels.pair.count("trtllm") != 1:
        return False
    running = {"prefill": s.kernels.prefill, "decode": s.kernels.decode}
    return s.role == "server" or (s.version < V20 and running[s.role] != "trtllm")


def is_raw(kernels: Kernels, role: RoleName, version: Version) -> bool:
    """Whether fp8 rows stand as they are (576 bytes) and not with scales (656).

    Up to 0.5.19 the half that does not run has its say too. 0.5.16 srt/mem_cache/kv_cache_configurator.py:1836; 0.5.20
    srt/mem_cache/kv_cache_configurator.py:2561.
    """
    running = {"server": kernels.pair, "prefill": kernels.pair[:1], "decode": kernels.pair[1:]}
    chosen = kernels.pair if version < V20 else running[role]
    return "trtllm" in chosen or (version >= V22 and kernels.pair == ("tilelang", "tilelang"))


def _packs_rows(s: Setting) -> bool:
    """Whether the pool keeps fp8 rows with their scales."""
    return s.kernels.kv == "fp8_e4m3" and None not in s.kernels.pair and not is_raw(s.kernels, s.role, s.version)


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


def auto_for_decode(s: Setting) -> bool:
    """flashmla_auto for decode."""
    return s.uses_dsa and s.kernels.decode == "flashmla_auto"


def aiter_for_prefill(s: Setting) -> bool:
    """Aiter for prefill."""
    return s.uses_dsa and s.kernels.prefill == "aiter"


def auto_without_choice(s: Setting) -> bool:
    """flashmla_auto where it always takes the same kernel."""
    return (
        s.uses_dsa
        and s.text("prefill_backend") == "flashmla_auto"
        and s.cuda
        and (s.sm_major == 9 or s.kernels.kv == "bfloat16")
    )


def named_kernel(s: Setting) -> Change:
    """The kernel that flashmla_auto would take."""
    return {"prefill_backend": "flashmla_kv" if s.kernels.kv == "fp8_e4m3" else "flashmla_sparse"}


def lora_rank_not_packed(s: Setting) -> bool:
    """A kv_lora_rank that packed rows cannot have."""
    return s.uses_dsa and s.cuda and _packs_rows(s) and s.model.kv_lora_rank % 128 != 0


def same_rows(s: Setting) -> Change:
    """Kernels with the same rows."""
    return (
        {"prefill_backend": "trtllm", "decode_backend": "trtllm"}
        if (s.sm_major or 0) >= 10
        else {"prefill_backend": "flashmla_kv", "decode_backend": "flashmla_kv"}
    )


def dense_attention(s: Setting) -> bool:
    """An attention backend other than dsa."""
    return s.model.is_dsa and s.kernels.attention != "dsa"


def q8_without_fp8(s: Setting) -> bool:
    """flashmla_sparse_q8 on a cache that is not fp8."""
    return _q8(s) and s.kernels.kv != "fp8_e4m3"


def q8_with_fp8(s: Setting) -> Change:
    """An fp8 cache, and a decode kernel that reads it."""
    return {
        "kv_cache_dtype": "fp8_e4m3",
        "decode_backend": None if s.text("decode_backend") == "fa3" else s.text("decode_backend"),
    }


def q8_off_hopper(s: Setting) -> bool:
    """flashmla_sparse_q8 elsewhere than on Hopper."""
    return (
        _q8(s)
        and s.sm_major != 9
        and not (s.version <= V21 and s.kernels.kv != "fp8_e4m3")
        and not (s.version >= V22 and _raw_pool(s))
    )


def q8_with_mixed_chunks(s: Setting) -> bool:
    """flashmla_sparse_q8 with mixed chunks."""
    return _q8(s) and s.sm_major == 9 and not _raw_pool(s) and s.mixed_chunk


def q8_for_decode(s: Setting) -> bool:
    """flashmla_sparse_q8 for decode."""
    return s.uses_dsa and s.cuda and s.kernels.decode == "flashmla_sparse_q8"


def q8_on_raw_pool(s: Setting) -> bool:
    """flashmla_sparse_q8 on a pool that trtllm keeps unpacked."""
    return _q8(s) and _raw_pool(s)


def sparse_mla_elsewhere(s: Setting) -> bool:
    """flashinfer_sparse_mla elsewhere than for GLM on compute capability 12."""
    return s.uses_dsa and (s.cuda or s.rocm) and "flashinfer_sparse_mla" in s.kernels.pair and not _is_glm_sm12_fp8(s)


def glm_sm12_other_kernel(s: Setting) -> bool:
    """GLM on compute capability 12 with another kernel than it has there."""
    return (
        s.uses_dsa
        and _is_glm_sm12_fp8(s)
        and (
            s.kernels.prefill not in (_SM12_GLM if s.version >= V22 else {"flashinfer_sparse_mla"})
            or s.kernels.decode != "flashinfer_sparse_mla"
        )
    )


def triton_mla_on_amd(s: Setting) -> bool:
    """triton_sparse_mla on AMD."""
    return _triton(s) and s.rocm


def triton_mla_below_hopper(s: Setting) -> bool:
    """triton_sparse_mla below Hopper."""
    return _triton(s) and s.sm_major is not None and s.sm_major < 9


def triton_mla_too_many_heads(s: Setting) -> bool:
    """triton_sparse_mla with more heads per rank than it is validated for."""
    return _triton(s) and (s.sm_major or 0) >= 9 and (s.heads_per_rank or 0) > _TRITON_HEADS


def union_misfit(s: Setting) -> bool:
    """Rows of a union that are no power of two from 16 to 32."""
    union, heads = s.number("triton_union"), s.heads_per_rank
    if not _triton(s) or (s.sm_major or 0) < 9 or not union or heads is None or heads > _TRITON_HEADS:
        return False
    rows = heads * union
    return rows < 16 or rows > 32 or rows & (rows - 1) != 0
