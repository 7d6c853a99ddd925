"""Expert kernels that came late, and what each asks of format and exchange."""

from __future__ import annotations

from dsabench.sglang.rules.quantization import Table, formats
from dsabench.sglang.rules.rule import (
    V10,
    V11,
    V13,
    V14,
    V16,
    V17,
    V18,
    V23,
    Rule,
    Words,
    says,
    without,
)
from dsabench.sglang.rules.setting import Setting

_ROUTED: Table = {
    V10: frozenset({"fp8", "mxfp8", None}),
    V11: frozenset({"fp8", "mxfp8", "modelopt_fp4", None}),
    V14: frozenset({"fp8", "mxfp8", "modelopt_fp4", "nvfp4_online", None}),
    V16: frozenset({"fp8", "mxfp8", "modelopt_fp4", "nvfp4_online", "modelopt_mixed", None}),
}
_CUTEDSL_EXCHANGES: Table = {
    V11: frozenset({"none", "deepep"}),
    V13: frozenset({"none", "deepep", "flashinfer"}),
}
_PLAIN = without("moe_runner_backend")


def _asked_exchange(s: Setting) -> str:
    """The exchange before ascend_tp becomes none."""
    return "ascend_tp" if s.text("moe_a2a_backend") == "ascend_tp" else s.parallel.a2a


def _cutedsl(s: Setting) -> bool:
    """Whether the checks behind that of the format (MO05) and of the ranks (MO02) are reached."""
    reads = {"modelopt_fp4"} | ({"modelopt_mixed"} if s.version >= V16 else set())
    reads |= {"nvfp4_online"} if s.version >= V18 else set()
    return (
        s.parallel.runner == "flashinfer_cutedsl"
        and s.parallel.quantization in reads
        and s.ep_asked in {1, s.parallel.tp}
    )


def _online_over_deepep(s: Setting) -> bool:
    return s.version >= V18 and s.parallel.a2a == "deepep" and s.parallel.quantization == "nvfp4_online"


RULES = (
    Rule(
        id="MO20",
        severity="error",
        since=V10,
        condition="flashinfer_trtllm_routed for experts in a format that it does not read",
        knobs=("moe_runner_backend", "quantization"),
        when=lambda s: (
            s.parallel.runner == "flashinfer_trtllm_routed"
            and s.parallel.quantization not in formats(_ROUTED, s.version)
        ),
        words=says(
            "AssertionError",
            "Invalid quantization '{s.parallel.quantization}'. \nFlashInfer TRTLLM routed MOE supports only: ‹a list›, or "
            "bfloat16 (None).",
        ),
        fix="moe_runner_backend: auto",
        change=_PLAIN,
        source="0.5.10=srt/server_args.py:2699; 0.5.16=srt/server_args.py:5707; 0.5.23=srt/arg_groups/moe_hook.py:147",
    ),
    Rule(
        id="MO21",
        severity="error",
        since=V11,
        condition="flashinfer_cutedsl with an exchange other than deepep (from 0.5.13 on, or flashinfer)",
        knobs=("moe_runner_backend", "moe_a2a_backend"),
        when=lambda s: _cutedsl(s) and _asked_exchange(s) not in formats(_CUTEDSL_EXCHANGES, s.version),
        words=(
            Words(
                V11,
                "AssertionError",
                "flashinfer_cutedsl supports moe_a2a_backend='none' (standard path) or 'deepep' (DeepEP low-latency "
                "path), got '‹the exchange›'.",
            ),
            Words(
                V13,
                "AssertionError",
                "flashinfer_cutedsl supports moe_a2a_backend='none', 'deepep', or 'flashinfer', got '‹the exchange›'.",
            ),
        ),
        fix="moe_a2a_backend: none",
        change=without("moe_a2a_backend"),
        source="0.5.12=srt/server_args.py:3120; 0.5.16=srt/server_args.py:5683; 0.5.23=srt/arg_groups/moe_hook.py:111",
    ),
    Rule(
        id="MO22",
        severity="error",
        since=V17,
        condition="flashinfer_cutedsl with DeepEP's kernels for prefill",
        knobs=("moe_runner_backend", "moe_a2a_backend", "deepep_mode"),
        when=lambda s: (
            _cutedsl(s)
            and s.parallel.a2a == "deepep"
            and s.text("deepep_mode") == "normal"
            and not _online_over_deepep(s)
        ),
        words=says(
            "ValueError",
            "flashinfer_cutedsl FP4 MoE only supports DeepEP low_latency dispatch (masked layout). DeepEP normal "
            "(prefill) dispatch has no CuteDSL FP4 handler. Pass --deepep-mode low_latency or auto.",
        ),
        fix="deepep_mode: auto",
        change=without("deepep_mode"),
        source="0.5.17=srt/server_args.py:6698; 0.5.23=srt/arg_groups/moe_hook.py:378",
    ),
    Rule(
        id="MO23",
        severity="error",
        since=V18,
        condition="flashinfer_cutedsl with DeepEP and experts quantised to NVFP4 while they load",
        knobs=("moe_runner_backend", "moe_a2a_backend", "quantization"),
        when=lambda s: _cutedsl(s) and _online_over_deepep(s),
        words=says(
            "ValueError",
            "flashinfer_cutedsl per-token NVFP4 activation requires moe_a2a_backend='none' or 'flashinfer'.",
        ),
        fix="moe_a2a_backend: none",
        change=without("moe_a2a_backend"),
        source="0.5.18=srt/server_args.py:6769; 0.5.23=srt/arg_groups/moe_hook.py:119",
    ),
    Rule(
        id="MO24",
        severity="error",
        since=V16,
        condition="experimental_sgl_marlin with an exchange between expert ranks",
        knobs=("moe_runner_backend", "moe_a2a_backend"),
        when=lambda s: (
            s.parallel.runner == "experimental_sgl_marlin" and s.parallel.a2a != "none" and s.parallel.ep > 1
        ),
        words=says("ValueError", "experimental_sgl_marlin EP requires --moe-a2a-backend none"),
        fix="moe_runner_backend: auto",
        change=_PLAIN,
        source="0.5.16=srt/lora/marlin_lora_temp/policy.py:19; 0.5.23=srt/lora/marlin_lora_temp/policy.py:23",
    ),
    Rule(
        id="MO25",
        severity="error",
        since=V23,
        condition="expert kernels for LoRA adapters, which no knob switches on",
        knobs=("moe_runner_backend",),
        when=lambda s: s.parallel.runner.startswith("lora_"),
        words=says("ValueError", "--moe-runner-backend {s.parallel.runner} requires --enable-lora (or --lora-paths)"),
        fix="moe_runner_backend: auto",
        change=_PLAIN,
        source="0.5.23=srt/arg_groups/lora_hook.py:202",
    ),
    Rule(
        id="MO26",
        severity="overwritten",
        since=V18,
        condition="moe_runner_backend megamoe, another name of the exchange, with another exchange",
        knobs=("moe_runner_backend", "moe_a2a_backend"),
        when=lambda s: (
            s.text("moe_runner_backend") == "megamoe" and s.text("moe_a2a_backend") not in {None, "none", "megamoe"}
        ),
        words=says(
            "log",
            "--moe-runner-backend megamoe is an alias for --moe-a2a-backend megamoe; overriding --moe-a2a-backend "
            "{s.knobs[moe_a2a_backend]}.",
        ),
        fix="moe_a2a_backend: megamoe",
        change=without("moe_runner_backend"),
        source="0.5.18=srt/server_args.py:3796; 0.5.20=srt/arg_groups/mega_moe_hook.py:28; "
        "0.5.23=srt/arg_groups/mega_moe_hook.py:266",
    ),
)
