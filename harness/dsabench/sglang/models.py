"""The DSA models that are known by name, from `models.yaml`: what serving them needs, where they run."""

from __future__ import annotations

from dataclasses import dataclass, field

from dsabench.errors import InputError
from dsabench.model.hardware import HARDWARE, Accelerator
from dsabench.model.tables import read_table
from dsabench.model.value import KnobValue
from dsabench.sglang.widths import WIDTHS, Widths

GLM = "GlmMoeDsaForCausalLM"
"""The architecture for which the runtime has branches of its own."""


@dataclass(frozen=True, slots=True)
class DsaModel:
    """One checkpoint."""

    name: str
    path: str
    """On the model hub."""
    widths: Widths
    """What its config.json says."""
    weights: str
    """Number format: bf16, fp8, nvfp4 or mxfp4."""
    weights_gib: float
    """At least this much memory over all ranks."""
    reasoning_parser: str
    tool_call_parser: str | None = None
    """None: no tool calls."""
    tp_size: int = 8
    """Ranks of one node that the documents serve it with."""
    needs: dict[str, KnobValue] = field(default_factory=dict)
    """Settings without which it does not load."""
    chat_template: str | None = None
    """In the runtime's repository, not in its wheel; needed for tool calls."""
    index_topk_pattern: str | None = None
    """IndexCache pattern that the documents recommend."""

    @property
    def is_glm(self) -> bool:
        """Whether the runtime takes its GLM branches."""
        return self.widths.architecture == GLM


MODELS: dict[str, DsaModel] = {
    name: DsaModel(name, **{**fields, "widths": WIDTHS[fields["widths"]]})
    for name, fields in read_table("models.yaml", __package__)["models"].items()
}
"""Short name → model."""


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


def computes(device: Accelerator, weights: str | None) -> bool:
    """Whether the number format of a checkpoint is one that the accelerator computes with."""
    if weights == "nvfp4":
        return (device.sm_major or 0) >= 10
    return weights != "mxfp4" or device.platform == "rocm"


def runs_on(model: DsaModel) -> tuple[str, ...]:
    """The known accelerators that compute with its weights."""
    return tuple(name for name, device in HARDWARE.items() if computes(device, model.weights))
