"""What a checkpoint needs: hardware that computes its number format, expert kernels and parsers that fit."""

from __future__ import annotations

from dsabench.sglang.models import MODELS, computes
from dsabench.sglang.rules.rule import Rule, says, to, without
from dsabench.sglang.rules.setting import Setting


def _elsewhere(s: Setting, weights: str) -> bool:
    return s.model.weights == weights and s.device is not None and not computes(s.device, weights)


def _parsers(s: Setting) -> dict[str, str | None]:
    """Those of the model; of a folder those of its architecture, where all models of it have the same."""
    known = MODELS.get(s.model.name or "")
    alike = [known] if known else [one for one in MODELS.values() if one.widths.architecture == s.model.architecture]
    found = {(one.tool_call_parser, one.reasoning_parser) for one in alike}
    return dict(zip(("tool_call_parser", "reasoning_parser"), found.pop(), strict=True)) if len(found) == 1 else {}


RULES = (
    Rule(
        id="MD01",
        severity="error",
        condition="NVFP4 weights elsewhere than on Blackwell",
        when=lambda s: _elsewhere(s, "nvfp4"),
        words=says("document", "Error: DeepSeek-V3.2-NVFP4 requires NVIDIA B200 (Blackwell) hardware"),
        fix="a Blackwell GPU, or a checkpoint in FP8",
        source="documents: command generator, generateCommand",
    ),
    Rule(
        id="MD02",
        severity="error",
        condition="MXFP4 weights elsewhere than on AMD",
        when=lambda s: _elsewhere(s, "mxfp4"),
        words=says("document", "Error: DeepSeek-V3.2-MXFP4 requires AMD MI300X/MI355X hardware"),
        fix="an AMD GPU, or a checkpoint in FP8",
        source="documents: command generator, generateCommand",
    ),
    Rule(
        id="MD03",
        severity="error",
        condition="a tool call parser for DeepSeek-V3.2-Speciale, which calls no tools",
        knobs=("tool_call_parser",),
        when=lambda s: s.model.name == "v3.2-speciale" and s.asked("tool_call_parser"),
        words=says("document", "Error: DeepSeek-V3.2-Speciale doesn't support tool calling"),
        fix="no tool_call_parser",
        change=without("tool_call_parser"),
        source="documents: command generator, generateCommand; usage guide, 'Function Calling and Reasoning Parser'",
    ),
    Rule(
        id="MD04",
        severity="advisory",
        condition="a tool call parser or reasoning parser of another model",
        knobs=("tool_call_parser", "reasoning_parser"),
        when=lambda s: (
            s.model.name != "v3.2-speciale"
            and any(s.text(knob) not in {None, "auto", parser} for knob, parser in _parsers(s).items())
        ),
        words=says("document", "calls and thinking stay in the text"),
        fix="the model's own parsers",
        change=_parsers,
        source="documents: usage guide, 'Function Calling and Reasoning Parser'",
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
            s.model.weights == "nvfp4"
            and (s.text("quantization") != "modelopt_fp4" or (s.parallel.runner == "auto" and not s.model.is_glm))
        ),
        words=says("document", "specify quantization modelopt_fp4 and a MoE runner"),
        fix="quantization: modelopt_fp4, moe_runner_backend: flashinfer_trtllm",
        change=to(quantization="modelopt_fp4", moe_runner_backend="flashinfer_trtllm"),
        source="documents: usage guide, 'NVFP4 Checkpoint'",
    ),
)
