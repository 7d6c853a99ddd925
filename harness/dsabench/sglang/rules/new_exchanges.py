"""Exchanges between expert ranks that came late: pplx, DeepEP's second version, MegaMoE."""

from __future__ import annotations

from dsabench.sglang.rules.exchange import room, splits_by_every_rank
from dsabench.sglang.rules.launch_checks import NO_SPECULATION, chunk_per_rank
from dsabench.sglang.rules.rule import V10, V13, V17, V20, V23, Rule, Words, says, to, without
from dsabench.sglang.rules.setting import Setting

_NONE = without("moe_a2a_backend")
_NO_OVERLAP = without("two_batch_overlap", "single_batch_overlap")
_PLAIN = without("moe_runner_backend")
_GRAPH = 256
"""At least this many requests are captured as a CUDA graph on GPUs that hold these models."""


def _overlaps(s: Setting) -> bool:
    return s.on("two_batch_overlap") or s.on("single_batch_overlap")


def _megamoe(s: Setting) -> bool:
    """As asked: zigzag replaces it later."""
    return "megamoe" in {s.text("moe_a2a_backend"), s.text("moe_runner_backend")}


def _pplx(s: Setting) -> bool:
    return s.parallel.a2a == "pplx" and s.text("deepep_mode") != "normal"


def _deepep_v2(s: Setting) -> bool:
    """DeepEP's second version where it is taken (MO15 refuses it elsewhere)."""
    return s.parallel.a2a == "deepep_v2" and s.model.is_glm


def _deepep_v2_starts(s: Setting) -> bool:
    return _deepep_v2(s) and s.parallel.runner in {"auto", "deep_gemm"} and not _overlaps(s)


def _deepep_v2_room(s: Setting) -> int:
    return room(s, "SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 128)


def _prefill_tokens(s: Setting) -> int:
    """New tokens that a rank exchanges in one step of prefill."""
    if s.role == "decode":
        return 0
    chunk = chunk_per_rank(s) or 0
    tokens = chunk if chunk > 0 else s.number("max_prefill_tokens") or 16384
    return -(-tokens // max(s.parallel.tp // s.parallel.attention_dp, 1))


def _graph_tokens(s: Setting) -> int:
    """Tokens that a rank exchanges in the largest CUDA graph of decode."""
    if s.role == "prefill" or s.knobs.get("cuda_graph") is False or s.text("deepep_mode") == "normal":
        return 0
    requests = s.number("cuda_graph_max_bs") or _GRAPH
    running = s.number("max_running_requests") or (48 if s.speculation.algorithm else None)
    if running is not None:
        requests = min(requests, max(running // s.parallel.attention_dp, 1))
    return requests * ((s.speculation.draft_tokens or 1) if s.speculation.algorithm else 1)


def _fused(s: Setting) -> bool:
    return s.parallel.a2a == "flashinfer_megamoe"


def _fused_reads(s: Setting) -> bool:
    fp4 = s.model.weights == "nvfp4" or s.parallel.quantization == "modelopt_fp4"
    return _fused(s) and (fp4 or s.parallel.quantization == "mxfp8")


RULES = (
    Rule(
        id="MO27",
        severity="error",
        since=V17,
        condition="the pplx exchange with DeepEP's mode for prefill",
        knobs=("moe_a2a_backend", "deepep_mode"),
        when=lambda s: s.parallel.a2a == "pplx" and s.text("deepep_mode") == "normal",
        words=says(
            "ValueError",
            "moe_a2a_backend='pplx' only supports low-latency mode; set --deepep-mode to 'low_latency' or 'auto'.",
        ),
        fix="deepep_mode: auto",
        change=without("deepep_mode"),
        source="0.5.17=srt/server_args.py:6754; 0.5.23=srt/arg_groups/moe_hook.py:578",
    ),
    Rule(
        id="MO28",
        severity="error",
        since=V17,
        condition="the pplx exchange with other expert kernels than deep_gemm",
        knobs=("moe_a2a_backend", "moe_runner_backend"),
        when=lambda s: _pplx(s) and s.parallel.attention_dp > 1 and s.parallel.runner not in {"auto", "deep_gemm"},
        words=says(
            "AssertionError",
            "moe_a2a_backend='pplx' is only supported with --moe-runner-backend deep_gemm (or auto).",
        ),
        fix="moe_runner_backend: auto",
        change=_PLAIN,
        source="0.5.17=srt/server_args.py:6772; 0.5.23=srt/arg_groups/moe_hook.py:600",
    ),
    Rule(
        id="MO29",
        severity="error",
        since=V23,
        condition="DeepEP's second version with other expert kernels than deep_gemm",
        knobs=("moe_a2a_backend", "moe_runner_backend"),
        when=lambda s: _deepep_v2(s) and s.parallel.runner not in {"auto", "deep_gemm"},
        words=says(
            "ValueError",
            "DeepEP v2 MoE currently supports only --moe-runner-backend deep_gemm. Got '{s.parallel.runner}'. Add a "
            "runner adapter before enabling DeepEP v2 with other MoE runners.",
        ),
        fix="moe_runner_backend: auto",
        change=_PLAIN,
        source="0.5.23=srt/arg_groups/moe_hook.py:415",
    ),
    Rule(
        id="MO30",
        severity="error",
        since=V23,
        condition="DeepEP's second version with overlapping batches",
        knobs=("moe_a2a_backend", "two_batch_overlap", "single_batch_overlap"),
        when=lambda s: _deepep_v2(s) and s.parallel.runner in {"auto", "deep_gemm"} and _overlaps(s),
        words=says(
            "ValueError",
            "DeepEP v2 MoE has not implemented the TBO/SBO overlap hooks yet. Disable --enable-two-batch-overlap and "
            "--enable-single-batch-overlap when using --moe-a2a-backend deepep_v2.",
        ),
        fix="no two_batch_overlap, no single_batch_overlap",
        change=_NO_OVERLAP,
        source="0.5.23=srt/arg_groups/moe_hook.py:422",
    ),
    Rule(
        id="MO31",
        severity="error",
        since=V23,
        condition="DeepEP's second version with speculation, whose draft layer would use it too",
        knobs=("moe_a2a_backend", "speculative_algorithm"),
        when=lambda s: _deepep_v2_starts(s) and s.speculation.algorithm not in {None, "NGRAM"},
        words=says(
            "ValueError",
            "DeepEP v2 MoE is not validated as a speculative draft backend. Select another --speculative-moe-a2a-backend.",
        ),
        fix="no speculation, or moe_a2a_backend: deepep",
        change=NO_SPECULATION,
        source="0.5.23=srt/arg_groups/moe_hook.py:636",
    ),
    Rule(
        id="MO32",
        severity="error",
        since=V23,
        condition="DeepEP's second version with more new tokens per rank and step than its buffers hold (128 unless set)",
        knobs=("moe_a2a_backend", "chunked_prefill_size", "dp_size", "dp_attention"),
        when=lambda s: (
            _deepep_v2_starts(s)
            and s.speculation.algorithm in {None, "NGRAM"}
            and (s.device is not None or s.asked("chunked_prefill_size"))
            and _prefill_tokens(s) > _deepep_v2_room(s)
        ),
        words=says(
            "ValueError",
            "DeepEP v2 per-rank prefill budget exceeds SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK: "
            "required=‹tokens›, capacity=‹tokens›. Raise the environment value or lower "
            "--chunked-prefill-size/--max-prefill-tokens.",
        ),
        fix="moe_a2a_backend: deepep, or the variable raised",
        change=to(moe_a2a_backend="deepep"),
        source="0.5.23=srt/arg_groups/moe_hook.py:690",
    ),
    Rule(
        id="MO33",
        severity="error",
        since=V23,
        condition="DeepEP's second version with larger CUDA graphs of decode than its buffers hold (128 tokens unless set)",
        knobs=("moe_a2a_backend", "cuda_graph_max_bs", "max_running_requests"),
        when=lambda s: (
            _deepep_v2_starts(s)
            and s.speculation.algorithm in {None, "NGRAM"}
            and _prefill_tokens(s) <= _deepep_v2_room(s) < _graph_tokens(s)
        ),
        words=says(
            "ValueError",
            "DeepEP v2 per-rank decode CUDA graph exceeds SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK: "
            "required=‹tokens›, capacity=‹tokens› (requests=‹requests›, tokens/request=‹tokens›). Raise the environment "
            "value or lower --cuda-graph-max-bs-decode.",
        ),
        fix="a cuda_graph_max_bs of at most 128, or the variable raised",
        change=lambda s: {"cuda_graph_max_bs": _deepep_v2_room(s)},
        source="0.5.23=srt/arg_groups/moe_hook.py:701",
    ),
    Rule(
        id="MO43",
        severity="error",
        since=V23,
        condition="DeepEP's second version over several nodes, in the mode that no knob changes",
        knobs=("moe_a2a_backend",),
        when=lambda s: _deepep_v2_starts(s) and s.nodes > 1,
        words=says(
            "ValueError",
            "--deepep-v2-mode direct is NVLink-only and cannot run across nodes (nnodes={s.nodes}); pass --deepep-v2-mode "
            "hybrid.",
        ),
        fix="moe_a2a_backend: deepep",
        change=to(moe_a2a_backend="deepep"),
        source="0.5.23=srt/arg_groups/moe_hook.py:434",
    ),
    Rule(
        id="MO34",
        severity="error",
        since=V23,
        condition="MegaMoE with overlapping batches",
        knobs=("moe_a2a_backend", "moe_runner_backend", "two_batch_overlap", "single_batch_overlap"),
        when=lambda s: _megamoe(s) and _overlaps(s),
        words=says(
            "ValueError",
            "--moe-a2a-backend megamoe has no two-batch / single-batch overlap decomposition; disable "
            "--enable-two-batch-overlap and --enable-single-batch-overlap.",
        ),
        fix="no two_batch_overlap, no single_batch_overlap",
        change=_NO_OVERLAP,
        source="0.5.23=srt/arg_groups/mega_moe_hook.py:34",
    ),
    Rule(
        id="MO35",
        severity="error",
        since=V23,
        condition="MegaMoE on an NVIDIA GPU that is neither Hopper nor Blackwell",
        knobs=("moe_a2a_backend", "moe_runner_backend"),
        when=lambda s: _megamoe(s) and s.sm_major not in {None, 9, 10} and not _overlaps(s),
        words=says(
            "ValueError",
            "--moe-a2a-backend megamoe needs a CUDA SM90 GPU (block-FP8 experts) or an SM100-class GPU (MXFP4 / NVFP4 "
            "experts); it runs DeepGEMM kernels over CUDA symmetric memory. On ROCm, set "
            "SGLANG_AMD_USE_FLYDSL_MEGA_MOE=1 to select aiter MegaMoEv2 instead.",
        ),
        fix="moe_a2a_backend: none",
        change=without("moe_a2a_backend", "moe_runner_backend"),
        source="0.5.23=srt/arg_groups/mega_moe_hook.py:44",
    ),
    Rule(
        id="MO36",
        severity="error",
        since=V20,
        condition="flashinfer's fused exchange with a checkpoint that is not in FP4 or MXFP8",
        knobs=("moe_a2a_backend", "quantization"),
        when=lambda s: _fused(s) and not (s.model.is_glm and s.version < V23) and not _fused_reads(s),
        words=(
            Words(
                V20,
                "ValueError",
                "FlashInfer MegaMOE currently supports only MXFP8, ModelOpt NVFP4, FP4-expert, or hybrid NVFP4 MoE "
                "checkpoints; got quantization=‹the format›. Standard FP8 MoE checkpoints are not supported.",
            ),
            Words(
                V23,
                "ValueError",
                "FlashInfer MegaMOE currently supports only MXFP8, ModelOpt NVFP4, FP4-expert, hybrid NVFP4 MoE "
                "checkpoints, or nvfp4_online with SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1; got quantization=‹the "
                "format›. Standard FP8 MoE checkpoints are not supported.",
            ),
        ),
        fix="moe_a2a_backend: none",
        change=_NONE,
        source="0.5.20=srt/arg_groups/moe_hook.py:226; 0.5.23=srt/arg_groups/moe_hook.py:276",
    ),
    Rule(
        id="MO37",
        severity="error",
        since=V20,
        until=V20,
        condition="flashinfer's fused exchange with GLM-5, which 0.5.20 does not list",
        knobs=("moe_a2a_backend",),
        when=lambda s: _fused(s) and s.model.is_glm,
        words=says(
            "ValueError",
            "FlashInfer MegaMOE is not validated for model architectures ‹a list›. Supported architectures: ‹a list›.",
        ),
        fix="moe_a2a_backend: none",
        change=_NONE,
        source="0.5.20=srt/arg_groups/moe_hook.py:211",
    ),
    Rule(
        id="MO38",
        severity="error",
        since=V20,
        condition="flashinfer's fused exchange without one group of the attention per rank",
        knobs=("moe_a2a_backend", "tp_size", "dp_size", "dp_attention"),
        when=lambda s: _fused_reads(s) and not (s.model.is_glm and s.version < V23) and not splits_by_every_rank(s),
        words=(
            Words(
                V20,
                "AssertionError",
                "FlashInfer MegaMOE is only supported with dp_size == tp_size and --enable-dp-attention",
            ),
            Words(
                V23,
                "AssertionError",
                "FlashInfer MegaMOE is only supported with --attn-dp-size equal to --tp-size",
            ),
        ),
        fix="dp_size: tp_size with dp_attention, or moe_a2a_backend: none",
        change=_NONE,
        source="0.5.20=srt/arg_groups/moe_hook.py:268; 0.5.23=srt/arg_groups/moe_hook.py:326",
    ),
    Rule(
        id="MO39",
        severity="error",
        since=V20,
        condition="flashinfer's fused exchange with other expert kernels than its own",
        knobs=("moe_a2a_backend", "moe_runner_backend"),
        when=lambda s: (
            _fused_reads(s)
            and not (s.model.is_glm and s.version < V23)
            and splits_by_every_rank(s)
            and s.parallel.runner not in {"auto", "flashinfer_megamoe"}
        ),
        words=says("AssertionError", "FlashInfer MegaMOE a2a backend requires --moe-runner-backend flashinfer_megamoe"),
        fix="moe_runner_backend: auto",
        change=_PLAIN,
        source="0.5.20=srt/arg_groups/moe_hook.py:275; 0.5.23=srt/arg_groups/moe_hook.py:333",
    ),
    Rule(
        id="MO40",
        severity="error",
        since=V23,
        condition="flashinfer's exchange with prefill that is not split",
        knobs=("moe_a2a_backend", "chunked_prefill_size"),
        when=lambda s: (
            s.parallel.a2a == "flashinfer"
            and splits_by_every_rank(s)
            and s.role != "decode"
            and (s.number("chunked_prefill_size") or 1) < 0
        ),
        words=says(
            "ValueError",
            "FlashInfer MoE A2A requires chunked prefill: eager prefill dispatches the whole per-rank extend batch through "
            "a fixed-size workspace, so --chunked-prefill-size must be > 0.",
        ),
        fix="leave chunked_prefill_size out",
        change=without("chunked_prefill_size"),
        source="0.5.23=srt/arg_groups/moe_hook.py:757",
    ),
    Rule(
        id="MO41",
        severity="error",
        since=V13,
        until=V20,
        condition="flashinfer's exchange and cutedsl kernels with more tokens of prefill than the exchange has room for "
        "(1024 per rank unless set)",
        knobs=("moe_a2a_backend", "moe_runner_backend", "max_prefill_tokens"),
        when=lambda s: (
            s.parallel.a2a == "flashinfer"
            and s.parallel.runner == "flashinfer_cutedsl"
            and s.parallel.quantization == "modelopt_fp4"
            and s.role != "decode"
            and splits_by_every_rank(s)
            and (s.number("max_prefill_tokens") or 16384)
            > room(s, "SGLANG_FLASHINFER_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 1024) * s.parallel.tp
        ),
        words=says(
            "ValueError",
            "FlashInfer MoE A2A with flashinfer_cutedsl requires SGLANG_FLASHINFER_NUM_MAX_DISPATCH_TOKENS_PER_RANK * "
            "ep_size to cover the largest CuteDSL MoE forward ‹values and a remedy›.",
        ),
        fix="max_prefill_tokens: 1024 × tp_size",
        change=lambda s: {"max_prefill_tokens": 1024 * s.parallel.tp},
        source="0.5.13=srt/server_args.py:3481; 0.5.16=srt/server_args.py:5788; 0.5.20=srt/arg_groups/moe_hook.py:654",
    ),
    Rule(
        id="MO42",
        severity="error",
        since=V10,
        until=V10,
        condition="the exchange for Ascend, whose variable 0.5.10 wants everywhere",
        knobs=("moe_a2a_backend",),
        when=lambda s: s.parallel.a2a == "ascend_fuseep" and s.env.get("SGLANG_NPU_FUSED_MOE_MODE") not in {"1", "2"},
        words=says("ValueError", "Wrong value of fuse_mode=‹the mode›, the NPU only support 1 or 2."),
        fix="moe_a2a_backend: none",
        change=_NONE,
        source="0.5.10=srt/server_args.py:2768",
    ),
)
