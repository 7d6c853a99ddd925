"""Attention kernels: the GPU that they run on, the cache that they read."""

from __future__ import annotations

from dsabench.sglang.rules.rule import V9, V10, V12, V13, V16, V17, V20, V22, Change, Rule, Words, says, without
from dsabench.sglang.rules.setting import Setting
from dsabench.sglang.versions import Version

_FLASHMLA = {"flashmla_sparse", "flashmla_kv", "flashmla_auto"}

_ROCM = {"tilelang", "aiter"}

KERNELS: tuple[tuple[Version, frozenset[str]], ...] = (
    (V9, frozenset({*_FLASHMLA, "fa3", "tilelang", "aiter", "trtllm"})),
    (V16, frozenset({"flashmla_sparse_q8"})),
    (V17, frozenset({"flashinfer_sparse_mla"})),
    (V20, frozenset({"triton"})),
    (V22, frozenset({"intel_xpu", "triton_sparse_mla"})),
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


def _defaults_for(s: Setting) -> Change:
    """Without the kernels that are named; where none is, dcp_size brought them (0.5.23 takes trtllm for it)."""
    named = [name for name in ("prefill_backend", "decode_backend") if s.asked(name)]
    return dict.fromkeys(named or ["dcp_size"])


def _fits_rocm(s: Setting) -> Change:
    kernel = "triton" if s.version >= V20 else "tilelang"
    return {"prefill_backend": kernel, "decode_backend": kernel}


PACKED_ROW = 656
"""Bytes of 512 numbers in fp8, 4 scales in fp32 and 64 rotated numbers in bfloat16."""

BF16_ROW = 1152

_BF16_DECODE = {"fa3", "flashmla_sparse"}


def _running(s: Setting) -> tuple[str | None, str | None]:
    """Prefill and decode kernel as far as they run: half a pair has one phase, but drafts extend with decode's kernel."""
    prefill = None if s.role == "decode" else s.kernels.prefill
    decode = None if s.role == "prefill" and s.speculation.algorithm is None else s.kernels.decode
    return prefill, decode


def _wrong_dtype(s: Setting) -> bool:
    prefill, decode = _running(s)
    return s.uses_dsa and s.cuda and s.kernels.kv == "fp8_e4m3" and (prefill == "fa3" or decode in _BF16_DECODE)


def reads_bf16_packed(s: Setting) -> bool:
    """Whether a bfloat16 pool is read by flashmla_kv."""
    return s.uses_dsa and s.cuda and s.kernels.kv == "bfloat16" and "flashmla_kv" in _running(s)


def _prefill_without_its_plan(s: Setting) -> bool:
    """0.5.9 and 0.5.10 plan the kernel's work, for prefill too, only where decode runs it (nsa_backend.py:650, 640)."""
    prefill, _ = _running(s)
    packed = prefill == "flashmla_kv" or (prefill == "flashmla_auto" and s.kernels.kv == "fp8_e4m3")
    return s.uses_dsa and s.cuda and packed and s.kernels.decode != "flashmla_kv"


def _reads_fp8(s: Setting) -> Change:
    prefill = s.text("prefill_backend")
    return {
        "kv_cache_dtype": s.kernels.kv,
        "prefill_backend": prefill if prefill == "flashmla_sparse" else None,
        "decode_backend": None,
    }


def _sparse_for_packed(s: Setting) -> Change:
    prefill, decode = ("flashmla_sparse" if kernel == "flashmla_kv" else kernel for kernel in s.kernels.pair)
    return {"prefill_backend": prefill, "decode_backend": decode}


def _plan_for_prefill(s: Setting) -> Change:
    if s.kernels.kv == "fp8_e4m3":
        return {"decode_backend": "flashmla_kv"}
    return {"prefill_backend": "flashmla_sparse"}


def _one_raw(s: Setting) -> bool:
    """One kernel keeps rows of 576 bytes, the other reads packed ones of 656.

    A half of disaggregation runs one of the two; up to 0.5.19 the other still decides on the rows.
    """
    if not s.uses_dsa or s.kernels.kv != "fp8_e4m3" or s.kernels.pair.count("trtllm") != 1:
        return False
    running = {"prefill": s.kernels.prefill, "decode": s.kernels.decode}
    return s.role == "server" or (s.version < V20 and running[s.role] != "trtllm")


def _packs_rows(s: Setting) -> bool:
    """Whether the pool keeps fp8 rows with their scales; up to 0.5.19 the half that does not run has its say too."""
    running = {"server": s.kernels.pair, "prefill": s.kernels.pair[:1], "decode": s.kernels.pair[1:]}
    chosen = s.kernels.pair if s.version < V20 else running[s.role]
    raw = "trtllm" in chosen or (s.version >= V22 and s.kernels.pair == ("tilelang", "tilelang"))
    return s.kernels.kv == "fp8_e4m3" and None not in s.kernels.pair and not raw


RULES = (
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
        fix="leave the backends out, or dcp_size where none is named",
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
        fix="leave the backends out, or dcp_size where none is named",
        change=_defaults_for,
        source="0.5.12=jit_kernel/flash_attention_v3.py:136; 0.5.16=jit_kernel/flash_attention_v3.py:137; "
        "0.5.23=kernels/ops/attention/flash_attention_v3.py:137",
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
    Rule(
        id="SL04",
        severity="error",
        condition="fp8_e4m3 KV with a kernel that reads bfloat16 alone: fa3, or flashmla_sparse for decode",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=_wrong_dtype,
        words=says(
            "silent",
            "nothing at launch; the server ends at its first token: 'query and key must have the same dtype' (fa3) or "
            "'kv must have dtype torch::kBFloat16' (flashmla_sparse)",
        ),
        fix="leave the backends out, or dcp_size where none is named",
        change=_reads_fp8,
        source="0.5.9=srt/layers/attention/nsa_backend.py:1560; 0.5.12=srt/layers/attention/nsa_backend.py:1628; "
        "0.5.16=srt/layers/attention/dsa_backend.py:2215; 0.5.23=srt/layers/attention/dsa_backend.py:2639",
    ),
    Rule(
        id="BE26",
        severity="error",
        until=V10,
        condition="flashmla_kv for prefill with another kernel for decode, which 0.5.9 and 0.5.10 do not prepare",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=_prefill_without_its_plan,
        words=says(
            "silent",
            "nothing at launch; the first prompt beyond the dense threshold ends in \"AttributeError: 'NoneType' object has "
            "no attribute 'flashmla_metadata'\"",
        ),
        fix="flashmla_kv for both (fp8_e4m3), or flashmla_sparse for prefill (bfloat16)",
        change=_plan_for_prefill,
        source="0.5.9=srt/layers/attention/nsa_backend.py:655; 0.5.10=srt/layers/attention/nsa_backend.py:645",
    ),
    Rule(
        id="SL12",
        severity="advisory",
        condition="flashmla_kv on a bfloat16 KV pool, which it quantises whole, layer by layer, at every step",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=reads_bf16_packed,
        words=says(
            "silent",
            f"nothing; each call reads {BF16_ROW:,} bytes per token of the pool, used or not, and writes {PACKED_ROW} beside "
            "it: bfloat16's memory, fp8's numbers, and a time that grows with the pool",
        ),
        fix="kv_cache_dtype: fp8_e4m3, or flashmla_sparse",
        change=_sparse_for_packed,
        source="0.5.9=srt/layers/attention/nsa_backend.py:1730; 0.5.12=srt/layers/attention/nsa_backend.py:1814; "
        "0.5.16=srt/layers/attention/dsa_backend.py:2525; 0.5.23=srt/layers/attention/dsa_backend.py:3343",
    ),
    Rule(
        id="KV03",
        severity="error",
        condition="packed fp8 KV with a kv_lora_rank that is no multiple of 128",
        knobs=("kv_cache_dtype", "model_overrides"),
        when=lambda s: s.uses_dsa and s.cuda and _packs_rows(s) and s.model.kv_lora_rank % 128 != 0,
        words=says("AssertionError", "kv_lora_rank {s.model.kv_lora_rank} must be multiple of quant_block_size 128"),
        fix="kv_cache_dtype: bfloat16, or leave kv_lora_rank at 512",
        change=lambda _: {"kv_cache_dtype": "bfloat16", "prefill_backend": None, "decode_backend": None},
        source="0.5.9=srt/model_executor/model_runner_kv_cache_mixin.py:241; "
        "0.5.12=srt/model_executor/model_runner_kv_cache_mixin.py:176; "
        "0.5.16=srt/mem_cache/kv_cache_configurator.py:1859; 0.5.23=srt/mem_cache/kv_cache_configurator.py:3466",
    ),
    Rule(
        id="SL02",
        severity="error",
        condition="fp8_e4m3 KV with trtllm for one of prefill and decode only",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=_one_raw,
        words=says(
            "silent",
            "nothing at launch; trtllm makes the pool store raw rows of 576 bytes and the other kernel reads packed rows "
            "of 656: a kernel fault or garbage",
        ),
        fix="trtllm for both, or for neither",
        change=lambda s: (
            {"prefill_backend": "trtllm", "decode_backend": "trtllm"}
            if (s.sm_major or 0) >= 10
            else {"prefill_backend": "flashmla_kv", "decode_backend": "flashmla_kv"}
        ),
        source="0.5.9=srt/model_executor/model_runner_kv_cache_mixin.py:223; "
        "0.5.23=srt/mem_cache/kv_cache_configurator.py:3425",
    ),
    Rule(
        id="DT03",
        severity="advisory",
        condition="an attention backend other than dsa: the indexer is skipped and attention is dense",
        knobs=("attention_backend",),
        when=lambda s: s.model.is_dsa and s.kernels.attention != "dsa",
        words=says("silent", "nothing; no DSA kernel runs"),
        fix="leave attention_backend out",
        change=without("attention_backend"),
        source="0.5.9=srt/layers/attention/nsa_backend.py:1",
    ),
)
