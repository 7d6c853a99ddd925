"""The DSA models as data: what their configs say, what serving them needs, where they run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dsabench.errors import InputError
from dsabench.model.hardware import HARDWARE, Accelerator
from dsabench.model.value import KnobValue

_DEEPSEEK, _GLM = "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"


@dataclass(frozen=True, slots=True)
class DsaModel:
    """One checkpoint. Widths are those of its config.json; the defaults are DeepSeek-V3.2's."""

    name: str
    path: str
    """On the model hub."""
    architecture: str = _DEEPSEEK
    layers: int = 61
    heads: int = 128
    """Attention heads; the ranks of the attention share them."""
    experts: int = 256
    index_topk: int = 2048
    index_heads: int = 64
    index_head_dim: int = 128
    kv_lora_rank: int = 512
    positions: int = 163840
    """Longest sequence."""
    weights: str = "fp8"
    hardware: tuple[str, ...] = tuple(HARDWARE)
    """Accelerators it is made for."""
    tp_size: int = 8
    """Ranks of one node that the documents serve it with."""
    needs: dict[str, KnobValue] = field(default_factory=dict)
    """Settings without which it does not load."""
    tool_call_parser: str | None = None
    """None: no tool calls."""
    reasoning_parser: str = "deepseek-v3"
    chat_template: str | None = None
    """In the runtime's repository, not in its wheel; needed for tool calls."""
    index_topk_pattern: str | None = None
    """IndexCache pattern that the documents recommend."""

    @property
    def is_glm(self) -> bool:
        """Whether the runtime takes its GLM branches."""
        return self.architecture == _GLM


_AMD = ("mi300x", "mi355x")

_GLM_5 = DsaModel(
    "glm-5",
    "zai-org/GLM-5-FP8",
    _GLM,
    layers=78,
    heads=64,
    index_heads=32,
    positions=202752,
    tool_call_parser="glm47",
    reasoning_parser="glm45",
    index_topk_pattern="FFSFSSSFSSFFFSSSFFFSFSSSSSSFFSFFSFFSSFFFFFFSFFFFFSFFSSSSSSFSFFFSFSSSFSFFSFFSSS",
)

MODELS: dict[str, DsaModel] = {
    model.name: model
    for model in (
        DsaModel(
            "v3.2-exp",
            "deepseek-ai/DeepSeek-V3.2-Exp",
            tool_call_parser="deepseekv31",
            chat_template="./examples/chat_template/tool_chat_template_deepseekv32.jinja",
        ),
        DsaModel("v3.2", "deepseek-ai/DeepSeek-V3.2", tool_call_parser="deepseekv32"),
        DsaModel("v3.2-speciale", "deepseek-ai/DeepSeek-V3.2-Speciale"),
        DsaModel(
            "v3.2-nvfp4",
            "nvidia/DeepSeek-V3.2-NVFP4",
            weights="nvfp4",
            hardware=("b200",),
            tp_size=4,
            needs={"quantization": "modelopt_fp4", "moe_runner_backend": "flashinfer_trtllm"},
            tool_call_parser="deepseekv32",
        ),
        DsaModel(
            "v3.2-mxfp4",
            "amd/DeepSeek-V3.2-mxfp4",
            weights="mxfp4",
            hardware=_AMD,
            needs={"trust_remote_code": True},
            tool_call_parser="deepseekv32",
        ),
        _GLM_5,
        replace(_GLM_5, name="glm-5-bf16", path="zai-org/GLM-5", weights="bf16"),
    )
}


def model_named(name: str) -> DsaModel:
    """The model with that short name or path.

    Raises:
        InputError: none; the line lists the known ones.

    """
    found = find_model(name)
    if found is None:
        raise InputError(f"{name}: unknown model (known: {', '.join(MODELS)})")
    return found


def find_model(name: str) -> DsaModel | None:
    """The same; None for a path that is not known (a local folder, say)."""
    wanted = name.lower()
    short = MODELS.get(wanted)
    if short is not None:
        return short
    return next((model for model in MODELS.values() if model.path.lower() == wanted), None)


def runs_on(model: DsaModel, device: Accelerator) -> bool:
    """Whether the checkpoint's number format is one that the accelerator computes with."""
    return device.name in model.hardware
