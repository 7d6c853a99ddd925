"""What a checkpoint needs: hardware that computes its number format, expert kernels and parsers that fit."""

from __future__ import annotations

from dsabench.sglang.models import MODELS, computes
from dsabench.sglang.rules.setting import Setting


def _elsewhere(s: Setting, weights: str) -> bool:
    return s.model.weights == weights and s.device is not None and not computes(s.device, weights)


def models_parsers(s: Setting) -> dict[str, str | None]:
    """Those of the model; of a folder those of its architecture, where all models of it have the same."""
    known = MODELS.get(s.model.name or "")
    alike = [known] if known else [one for one in MODELS.values() if one.widths.architecture == s.model.architecture]
    found = {(one.tool_call_parser, one.reasoning_parser) for one in alike}
    return dict(zip(("tool_call_parser", "reasoning_parser"), found.pop(), strict=True)) if len(found) == 1 else {}


def nvfp4_off_blackwell(s: Setting) -> bool:
    """NVFP4 weights on a GPU that does not compute with them."""
    return _elsewhere(s, "nvfp4")


def mxfp4_off_amd(s: Setting) -> bool:
    """MXFP4 weights on a GPU that does not compute with them."""
    return _elsewhere(s, "mxfp4")


def tools_of_speciale(s: Setting) -> bool:
    """A tool call parser for a model without tool calls."""
    return s.model.name == "v3.2-speciale" and s.asked("tool_call_parser")


def parsers_of_another_model(s: Setting) -> bool:
    """A parser that is not the model's."""
    return s.model.name != "v3.2-speciale" and any(
        (s.text(knob) not in {None, "auto", parser} for knob, parser in models_parsers(s).items())
    )


def nvfp4_with_other_kernels(s: Setting) -> bool:
    """NVFP4 weights with expert kernels that do not read them."""
    return s.model.weights == "nvfp4" and s.parallel.runner not in {
        "auto",
        "flashinfer_trtllm",
        "flashinfer_cutlass",
        "flashinfer_cutedsl",
    }


def nvfp4_not_said(s: Setting) -> bool:
    """NVFP4 weights without the settings that the documents ask for."""
    return s.model.weights == "nvfp4" and (
        s.text("quantization") != "modelopt_fp4" or (s.parallel.runner == "auto" and not s.model.is_glm)
    )
