"""The DSA models that are known by name, from `models.yaml`: their widths, what serving them needs, where they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import JsonValue

from dsabench.errors import InputError
from dsabench.model.hardware import HARDWARE, Accelerator
from dsabench.model.tables import read_table
from dsabench.model.value import KnobValue


@dataclass(frozen=True, slots=True)
class Widths:
    """One model. The defaults are DeepSeek-V3.2's (deepseek-ai/DeepSeek-V3.2, config.json)."""

    architecture: str = "DeepseekV32ForCausalLM"
    model_type: str = "deepseek_v32"
    layers: int = 61
    dense_layers: int = 3
    heads: int = 128
    hidden: int = 7168
    intermediate: int = 18432
    moe_intermediate: int = 2048
    experts: int = 256
    active_experts: int = 8
    expert_groups: int = 8
    chosen_groups: int = 4
    vocabulary: int = 129280
    positions: int = 163840
    q_lora_rank: int = 1536
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    index_heads: int = 64
    index_head_dim: int = 128
    index_topk: int = 2048
    rms_norm_eps: float = 1e-6
    indexer: str | None = None
    """A letter for each layer: F computes the indexer, S shares the last result. None: each computes its own."""
    more: dict[str, JsonValue] = field(default_factory=dict)
    """Entries of its own."""

    def config_json(self) -> dict[str, JsonValue]:
        """The contents of its config.json, but for the format of its weights."""
        return {
            "architectures": [self.architecture],
            **{key: getattr(self, field) for field, key in _KEYS.items()},
            "num_key_value_heads": self.heads,
            **_SAME,
            **self._indexer_types(),
            **self.more,
        }

    def _indexer_types(self) -> dict[str, JsonValue]:
        words = {"F": "full", "S": "shared"}
        return {} if self.indexer is None else {"indexer_types": [words[letter] for letter in self.indexer]}


_KEYS = {
    "model_type": "model_type",
    "layers": "num_hidden_layers",
    "dense_layers": "first_k_dense_replace",
    "heads": "num_attention_heads",
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "moe_intermediate": "moe_intermediate_size",
    "experts": "n_routed_experts",
    "active_experts": "num_experts_per_tok",
    "expert_groups": "n_group",
    "chosen_groups": "topk_group",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
    "qk_nope_head_dim": "qk_nope_head_dim",
    "qk_rope_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
    "index_heads": "index_n_heads",
    "index_head_dim": "index_head_dim",
    "index_topk": "index_topk",
    "rms_norm_eps": "rms_norm_eps",
}
"""Field → its name in config.json."""

_SAME: dict[str, JsonValue] = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "ep_size": 1,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "moe_layer_freq": 1,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_nextn_predict_layers": 1,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}
"""What all of them have in common."""


def widths_of(config: Mapping[str, JsonValue]) -> Widths:
    """The widths that a config.json says.

    Raises:
        InputError: a width is missing.

    """
    needed = {
        field: key for field, key in _KEYS.items() if field not in {"expert_groups", "chosen_groups", "rms_norm_eps"}
    }
    missing = [key for key in needed.values() if key not in config]
    if missing:
        raise InputError(f"config.json has no {', '.join(missing)}")
    architectures = config.get("architectures")
    named = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    found: dict[str, Any] = {field: config[key] for field, key in _KEYS.items() if key in config}
    return Widths(architecture=named, **found)


QUANTIZATION: dict[str, dict[str, JsonValue]] = {
    "bf16": {},
    "fp8": {
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "scale_fmt": "ue8m0",
            "weight_block_size": [128, 128],
        }
    },
    "nvfp4": {
        "quantization_config": {
            "quant_method": "modelopt_fp4",
            "quant_algo": "NVFP4",
            "kv_cache_scheme": None,
            "ignore": [],
        }
    },
    "mxfp4": {"quantization_config": {"quant_method": "quark"}},
}
"""Format of the weights → what config.json says of it."""


_TABLE = read_table("models.yaml", __package__)


def _widths() -> dict[str, Widths]:
    found: dict[str, Widths] = {}
    for name, row in _TABLE["widths"].items():
        own = {key: value for key, value in row.items() if key != "like"}
        found[name] = replace(found[row["like"]], **own) if "like" in row else Widths(**own)
    return found


WIDTHS = _widths()
"""Short name of a family → widths."""


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
    name: DsaModel(name, **{**fields, "widths": WIDTHS[fields["widths"]]}) for name, fields in _TABLE["models"].items()
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
