"""Experts: kernels, quantisation, exchange between ranks, overlap."""

from __future__ import annotations

from dsabench.sglang.rules.quantization import Table, formats
from dsabench.sglang.rules.resolve import SPANNING
from dsabench.sglang.rules.rule import (
    V9,
    V10,
    V11,
    V13,
    V14,
    V15,
    V16,
    V17,
    V18,
    V19,
    V20,
    Rule,
    Words,
    says,
    to,
    without,
)
from dsabench.sglang.rules.setting import Setting

_CUTLASS: Table = {
    V9: frozenset({"modelopt_fp4", "modelopt_fp8", None}),
    V10: frozenset({"modelopt_fp4", "modelopt_fp8", "modelopt_mixed", None}),
}
_TRTLLM: Table = {
    V9: frozenset({"modelopt_fp4", "fp8", "modelopt_fp8", "compressed-tensors", None}),
    V10: frozenset({"modelopt_fp4", "fp8", "mxfp8", "modelopt_fp8", "modelopt_mixed", "compressed-tensors", None}),
    V14: frozenset(
        ("modelopt_fp4", "nvfp4_online", "fp8", "mxfp8", "modelopt_fp8", "modelopt_mixed", "compressed-tensors", None)
    ),
}
_CUTEDSL: Table = {
    V11: frozenset({"modelopt_fp4"}),
    V16: frozenset({"modelopt_fp4", "modelopt_mixed"}),
    V18: frozenset({"modelopt_fp4", "modelopt_mixed", "nvfp4_online"}),
}
_A2A_RUNNERS: Table = {
    V9: frozenset({"flashinfer_cutlass"}),
    V13: frozenset({"flashinfer_cutlass", "flashinfer_cutedsl"}),
    V15: frozenset({"flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_trtllm_routed"}),
    V19: frozenset(
        ("flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_trtllm_routed", "flashinfer_trtllm", "deep_gemm")
    ),
}


def _refused(s: Setting, runner: str, table: Table) -> bool:
    same = {runner, "experimental_sgl_trtllm"} if runner == "flashinfer_trtllm" else {runner}
    return s.parallel.runner in same and s.parallel.quantization not in formats(table, s.version)


def _partial_experts(s: Setting) -> bool:
    return s.ep_asked not in {1, s.parallel.tp}


RULES = (
    Rule(
        id="MO01",
        severity="error",
        condition="flashinfer_cutlass for experts that are not in one of ModelOpt's formats (or bfloat16)",
        knobs=("moe_runner_backend", "quantization"),
        when=lambda s: _refused(s, "flashinfer_cutlass", _CUTLASS),
        words=(
            Words(
                V9,
                "AssertionError",
                "Invalid quantization '{s.parallel.quantization}'. \nFlashInfer Cutlass MOE supports only: "
                "'modelopt_fp4', 'modelopt_fp8', or bfloat16 (None).",
            ),
            Words(
                V10,
                "AssertionError",
                "Invalid quantization '{s.parallel.quantization}'. \nFlashInfer Cutlass MOE supports only: "
                "'modelopt_fp4', 'modelopt_fp8', 'modelopt_mixed', or bfloat16 (None).",
            ),
        ),
        fix="moe_runner_backend: auto",
        change=without("moe_runner_backend"),
        source="0.5.9=srt/server_args.py:2141; 0.5.12=srt/server_args.py:3102; 0.5.16=srt/server_args.py:5662; "
        "0.5.23=srt/arg_groups/moe_hook.py:87",
    ),
    Rule(
        id="MO02",
        severity="error",
        condition="flashinfer_cutlass (from 0.5.11 flashinfer_cutedsl too) with an ep_size between 1 and tp_size",
        knobs=("moe_runner_backend", "ep_size", "tp_size"),
        when=lambda s: (
            _partial_experts(s)
            and (
                (s.parallel.runner == "flashinfer_cutlass" and not _refused(s, "flashinfer_cutlass", _CUTLASS))
                or (
                    s.version >= V11
                    and s.parallel.runner == "flashinfer_cutedsl"
                    and not _refused(s, "flashinfer_cutedsl", _CUTEDSL)
                )
            )
        ),
        words=says("AssertionError", "The expert parallel size must be 1 or the same as the tensor parallel size"),
        fix="ep_size: tp_size",
        change=lambda s: {"ep_size": s.parallel.tp},
        source="0.5.9=srt/server_args.py:2145; 0.5.12=srt/server_args.py:3106; 0.5.16=srt/server_args.py:5666; "
        "0.5.23=srt/arg_groups/moe_hook.py:92",
    ),
    Rule(
        id="MO03",
        severity="overwritten",
        condition="an ep_size other than tp_size with an exchange that spans all ranks (deepep and its like)",
        knobs=("moe_a2a_backend", "ep_size", "tp_size"),
        when=lambda s: (
            s.parallel.a2a in SPANNING
            and s.number("ep_size") not in {None, s.parallel.tp}
            and not (s.parallel.cp and s.parallel.cp_mode == "zigzag")
        ),
        words=(
            Words(
                V9,
                "log",
                "‹the exchange› MoE is enabled. The expert parallel size is adjusted to be the same as the tensor "
                "parallel size[{s.parallel.tp}].",
            ),
            Words(
                V17,
                "log",
                "{s.parallel.a2a} MoE is enabled. The expert parallel size is adjusted from {s.knobs[ep_size]} to the "
                "tensor parallel size [{s.parallel.tp}].",
            ),
        ),
        fix="ep_size: tp_size",
        change=lambda s: {"ep_size": s.parallel.tp},
        source="0.5.9=srt/server_args.py:2184; 0.5.12=srt/server_args.py:3211; 0.5.16=srt/server_args.py:5832; "
        "0.5.23=srt/arg_groups/overrides.py:1614",
    ),
    Rule(
        id="MO04",
        severity="error",
        condition="flashinfer_trtllm for experts in a format that it does not read",
        knobs=("moe_runner_backend", "quantization"),
        when=lambda s: _refused(s, "flashinfer_trtllm", _TRTLLM),
        words=(
            Words(
                V9,
                "AssertionError",
                "Invalid quantization '{s.parallel.quantization}'. \nFlashInfer TRTLLM MOE supports only: "
                "'modelopt_fp4', 'fp8', 'modelopt_fp8', 'compressed-tensors', or bfloat16 (None).",
            ),
            Words(
                V10,
                "AssertionError",
                "Invalid quantization '{s.parallel.quantization}'. \nFlashInfer TRTLLM MOE supports only: "
                "'modelopt_fp4', 'fp8', 'modelopt_fp8', 'modelopt_mixed', 'compressed-tensors', or bfloat16 (None).",
            ),
            Words(
                V14,
                "AssertionError",
                "Invalid quantization '{s.parallel.quantization}'. \nFlashInfer TRTLLM MOE supports only: "
                "'modelopt_fp4', 'nvfp4_online', 'fp8', 'modelopt_fp8', 'modelopt_mixed', 'compressed-tensors', or "
                "bfloat16 (None).",
            ),
        ),
        fix="moe_runner_backend: auto",
        change=without("moe_runner_backend"),
        source="0.5.9=srt/server_args.py:2152; 0.5.12=srt/server_args.py:3129; 0.5.16=srt/server_args.py:5690; "
        "0.5.23=srt/arg_groups/moe_hook.py:124",
    ),
    Rule(
        id="MO05",
        severity="error",
        since=V11,
        condition="flashinfer_cutedsl for experts that are not NVFP4",
        knobs=("moe_runner_backend", "quantization"),
        when=lambda s: _refused(s, "flashinfer_cutedsl", _CUTEDSL),
        words=(
            Words(
                V11,
                "AssertionError",
                "Invalid quantization '{s.parallel.quantization}'. \nFlashInfer CuteDSL MOE currently supports only: "
                "‹a list›.",
            ),
        ),
        fix="moe_runner_backend: auto",
        change=without("moe_runner_backend"),
        source="0.5.11=srt/server_args.py:2977; 0.5.12=srt/server_args.py:3109; 0.5.16=srt/server_args.py:5673; 0.5.23=srt/arg_groups/moe_hook.py:99",
    ),
    Rule(
        id="MO06",
        severity="error",
        condition="cutlass for fp8 experts with expert parallelism",
        knobs=("moe_runner_backend", "quantization", "ep_size"),
        when=lambda s: (
            s.parallel.runner == "cutlass" and s.parallel.quantization in {"fp8", "mxfp8"} and s.ep_asked != 1
        ),
        words=says("AssertionError", "FP8/MXFP8 Cutlass MoE is only supported with ep_size == 1"),
        fix="ep_size: 1",
        change=without("ep_size", "moe_a2a_backend"),
        source="0.5.9=srt/server_args.py:2180; 0.5.12=srt/server_args.py:3175; 0.5.16=srt/server_args.py:5735; "
        "0.5.23=srt/arg_groups/moe_hook.py:161",
    ),
    Rule(
        id="MO07",
        severity="error",
        condition="flashinfer's exchange with expert kernels that it does not feed",
        knobs=("moe_a2a_backend", "moe_runner_backend", "dp_size", "dp_attention"),
        when=lambda s: s.parallel.a2a == "flashinfer" and s.parallel.runner not in formats(_A2A_RUNNERS, s.version),
        words=(
            Words(
                V9,
                "AssertionError",
                "Flashinfer MoE A2A is only supported with flashinfer_cutlass moe runner backend",
            ),
            Words(V13, "AssertionError", "Flashinfer MoE A2A is ‹only› supported with ‹a list›"),
            Words(
                V19,
                "AssertionError",
                "FlashInfer MoE A2A is supported with flashinfer_cutlass, flashinfer_cutedsl, flashinfer_trtllm, "
                "flashinfer_trtllm_routed, or deep_gemm.",
            ),
        ),
        fix="moe_a2a_backend: none",
        change=without("moe_a2a_backend"),
        source="0.5.9=srt/server_args.py:2219; 0.5.12=srt/server_args.py:3278; 0.5.16=srt/server_args.py:5886; "
        "0.5.23=srt/arg_groups/moe_hook.py:531",
    ),
    Rule(
        id="TB01",
        severity="error",
        since=V13,
        condition="two-batch overlap with layers that share an indexer's result",
        knobs=("two_batch_overlap", "index_topk_pattern", "model_overrides"),
        when=lambda s: s.model.is_dsa and s.on("two_batch_overlap") and s.model.shares_index,
        words=(
            Words(
                V13,
                "ValueError",
                "--enable-two-batch-overlap is not supported with DSA index-topk sharing (index_topk_freq > 1 or an "
                "index_topk_pattern containing shared layers): the TBO op path does not propagate topk indices across "
                "layers, so shared layers would run sparse attention without indices.",
            ),
            Words(
                V20,
                "ValueError",
                "--enable-two-batch-overlap is not supported with DSA index-topk sharing: the TBO op path does not "
                "propagate topk indices across layers, so shared layers would run sparse attention without indices. Got "
                "index_topk_freq={s.model.index_topk_freq}, index_topk_pattern='{s.model.index_topk_pattern}', and "
                "indexer_types=‹types›.",
            ),
        ),
        fix="two_batch_overlap: false",
        change=without("two_batch_overlap"),
        source="0.5.16=srt/server_args.py:4401; 0.5.23=srt/arg_groups/model_hook.py:68",
    ),
    Rule(
        id="TB02",
        severity="error",
        until=V14,
        condition="two-batch overlap without an exchange between expert ranks",
        knobs=("two_batch_overlap", "moe_a2a_backend"),
        when=lambda s: s.on("two_batch_overlap") and s.parallel.a2a == "none",
        words=says("ValueError", "When enabling two batch overlap, moe_a2a_backend cannot be 'none'."),
        fix="moe_a2a_backend: deepep",
        change=lambda s: {"moe_a2a_backend": "deepep", "ep_size": s.parallel.tp},
        source="0.5.9=srt/server_args.py:5260; 0.5.12=srt/server_args.py:7378",
    ),
    Rule(
        id="MO08",
        severity="error",
        condition="NVFP4 weights with expert kernels that do not read them",
        knobs=("moe_runner_backend", "quantization"),
        when=lambda s: (
            s.model.weights == "nvfp4"
            and s.parallel.runner not in {"auto", "flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_cutedsl"}
        ),
        words=says("document", "one of flashinfer_trtllm (recommended), flashinfer_cutlass and flashinfer_cutedsl"),
        fix="moe_runner_backend: flashinfer_trtllm",
        change=to(moe_runner_backend="flashinfer_trtllm", quantization="modelopt_fp4"),
        source="documents: usage guide, 'NVFP4 Checkpoint'",
    ),
    Rule(
        id="MO09",
        severity="advisory",
        condition="NVFP4 weights without saying so, which the documents ask for",
        knobs=("quantization", "moe_runner_backend"),
        when=lambda s: (
            s.model.weights == "nvfp4" and (s.text("quantization") != "modelopt_fp4" or s.parallel.runner == "auto")
        ),
        words=says("document", "specify quantization modelopt_fp4 and a MoE runner"),
        fix="quantization: modelopt_fp4, moe_runner_backend: flashinfer_trtllm",
        change=to(quantization="modelopt_fp4", moe_runner_backend="flashinfer_trtllm"),
        source="documents: usage guide, 'NVFP4 Checkpoint'",
    ),
)
