"""Which number format may be asked of which checkpoint, where."""

from __future__ import annotations

from collections.abc import Mapping

from dsabench.sglang.rules.rule import (
    V9,
    V11,
    V13,
    V14,
    V15,
    V16,
    V17,
    V18,
    V20,
    V23,
    Rule,
    Words,
    says,
    without,
)
from dsabench.sglang.rules.setting import Setting
from dsabench.sglang.versions import Version

Table = Mapping[Version, frozenset[str | None]]
"""Formats from a version on."""

_OVER_FP8: Table = {
    V9: frozenset({None, "fp8"}),
    V11: frozenset({None, "fp8", "unquant"}),
    V14: frozenset({None, "fp8", "unquant", "nvfp4_online"}),
    V16: frozenset({None, "fp8", "unquant", "nvfp4_online", "humming"}),
    V17: frozenset({None, "fp8", "unquant", "nvfp4_online", "humming", "quark_mxfp4"}),
    V18: frozenset({None, "fp8", "unquant", "nvfp4_online", "humming", "quark_mxfp4", "modelopt_fp4"}),
}
"""What may be asked of an fp8 checkpoint; later releases quantise its experts once more while they load."""
_OVER_QUARK: Table = {
    V9: frozenset({None, "quark"}),
    V11: frozenset({None, "quark", "unquant"}),
    V16: frozenset({None, "quark", "unquant", "humming"}),
    V17: frozenset({None, "quark", "unquant", "humming", "quark_mxfp4"}),
}
_ROCM = frozenset(
    ("awq", "fp8", "compressed-tensors", "w8a8_fp8", "petit_nvfp4", "quark", "mxfp4", "auto-round", "quark_int4fp8_moe")
)
_ALSO_ROCM: Table = {
    V9: frozenset({"gptq"}),
    V13: frozenset({"gptq", "quark_mxfp4"}),
    V14: frozenset({"gptq", "quark_mxfp4", "mxfp8"}),
    V15: frozenset({"gptq", "quark_mxfp4", "mxfp8", "auto-round-int8"}),
}
_UNKNOWN: Table = {
    V9: frozenset({"marlin", "mlx_q4", "mlx_q8"}),
    V20: frozenset({"gptq", "mlx_q4", "mlx_q8"}),
}
"""Names that the flag takes and the loader does not."""


def formats(table: Table, version: Version) -> frozenset[str | None]:
    """The table's row for a version; nothing before its first."""
    return next((names for since, names in reversed(tuple(table.items())) if since <= version), frozenset())


def _asked(s: Setting) -> str | None:
    return s.text("quantization")


def _not_the_checkpoints(s: Setting) -> bool:
    if s.model.weights == "fp8":
        return _asked(s) not in formats(_OVER_FP8, s.version)
    if s.model.weights == "mxfp4":
        return _asked(s) not in formats(_OVER_QUARK, s.version)
    return s.model.weights == "nvfp4" and s.version >= V18 and _asked(s) == "nvfp4_online"


def _unknown(s: Setting) -> bool:
    """Of another checkpoint than one in bfloat16, MO10 speaks first."""
    no_mxfp4 = s.rocm and _asked(s) == "mxfp4" and s.device is not None and s.device.capability == (9, 4)
    return s.model.weights == "bf16" and (_asked(s) in formats(_UNKNOWN, s.version) or no_mxfp4)


def _not_on_rocm(s: Setting) -> bool:
    return (
        s.rocm
        and s.model.weights in {"fp8", "mxfp4", "bf16"}
        and _asked(s) not in {None, "unquant", *_ROCM, *formats(_ALSO_ROCM, s.version)}
        and not _not_the_checkpoints(s)
        and not _unknown(s)
    )


def online_fp4(s: Setting) -> bool:
    """Whether the experts are to be quantised to NVFP4 while they load."""
    return s.parallel.quantization == "nvfp4_online" and s.version >= V14 and not _not_the_checkpoints(s)


_ONLINE_RUNNERS: Table = {
    V14: frozenset({"auto", "flashinfer_trtllm", "flashinfer_trtllm_routed"}),
    V18: frozenset({"auto", "flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutedsl"}),
}

RULES = (
    Rule(
        id="MO10",
        severity="error",
        condition="a quantization other than the checkpoint's",
        knobs=("quantization",),
        when=_not_the_checkpoints,
        words=says(
            "ValueError",
            "Quantization method specified in the model config (‹the checkpoint's›) does not match the quantization "
            "method specified in the `quantization` argument ({s.knobs[quantization]}).",
        ),
        fix="leave quantization out",
        change=without("quantization"),
        source="0.5.9=srt/configs/model_config.py:944; 0.5.16=srt/configs/model_config.py:1445",
    ),
    Rule(
        id="MO16",
        severity="error",
        since=V14,
        condition="experts quantised to NVFP4 while they load elsewhere than on Blackwell",
        knobs=("quantization",),
        when=lambda s: online_fp4(s) and s.cuda and s.sm_major != 10,
        words=says("ValueError", "--quantization nvfp4_online is supported only on NVIDIA Blackwell SM100/SM103 GPUs."),
        fix="leave quantization out",
        change=without("quantization"),
        source="0.5.14=srt/server_args.py:5067; 0.5.16=srt/arg_groups/overrides.py:1967; "
        "0.5.23=srt/arg_groups/overrides.py:1459",
    ),
    Rule(
        id="MO17",
        severity="error",
        since=V14,
        condition="experts quantised to NVFP4 while they load with kernels that do not read them",
        knobs=("quantization", "moe_runner_backend"),
        when=lambda s: (
            online_fp4(s) and s.sm_major == 10 and s.parallel.runner not in formats(_ONLINE_RUNNERS, s.version)
        ),
        words=(
            Words(
                V14,
                "ValueError",
                "--quantization nvfp4_online supports only --moe-runner-backend flashinfer_trtllm or "
                "flashinfer_trtllm_routed.",
            ),
            Words(
                V18,
                "ValueError",
                "--quantization nvfp4_online supports only --moe-runner-backend flashinfer_trtllm or "
                "flashinfer_trtllm_routed, or flashinfer_cutedsl.",
            ),
            Words(
                V23,
                "ValueError",
                "--quantization nvfp4_online supports only --moe-runner-backend flashinfer_trtllm or "
                "flashinfer_trtllm_routed, or flashinfer_cutedsl; flashinfer_megamoe requires --moe-a2a-backend "
                "flashinfer_megamoe and SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1.",
            ),
        ),
        fix="moe_runner_backend: auto",
        change=without("moe_runner_backend"),
        source="0.5.14=srt/server_args.py:5077; 0.5.16=srt/arg_groups/overrides.py:1977; "
        "0.5.23=srt/arg_groups/overrides.py:1472",
    ),
    Rule(
        id="MO18",
        severity="error",
        condition="a quantization that is not made for AMD",
        knobs=("quantization",),
        when=_not_on_rocm,
        words=says("ValueError", "{s.knobs[quantization]} quantization is currently not supported in ROCm."),
        fix="leave quantization out",
        change=without("quantization"),
        source="0.5.9=srt/configs/model_config.py:967; 0.5.16=srt/configs/model_config.py:1474; "
        "0.5.23=srt/configs/model_config.py:2158",
    ),
    Rule(
        id="MO19",
        severity="error",
        condition="a quantization that the flag takes and the loader does not know",
        knobs=("quantization",),
        when=_unknown,
        words=says("ValueError", "Unknown quantization method: {s.knobs[quantization]}. Must be one of ‹a list›."),
        fix="leave quantization out",
        change=without("quantization"),
        source="0.5.9=srt/configs/model_config.py:962; 0.5.16=srt/configs/model_config.py:1469; "
        "0.5.23=srt/configs/model_config.py:2153",
    ),
)
