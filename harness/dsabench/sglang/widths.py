"""The widths of the DSA models, as their config.json has them: what a slice of one is cut from."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import JsonValue


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
    more: dict[str, JsonValue] = field(default_factory=dict)
    """Entries of its own."""

    def config_json(self) -> dict[str, JsonValue]:
        """The contents of its config.json, but for the format of its weights."""
        return {
            "architectures": [self.architecture],
            "model_type": self.model_type,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "ep_size": 1,
            "first_k_dense_replace": self.dense_layers,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "index_head_dim": self.index_head_dim,
            "index_n_heads": self.index_heads,
            "index_topk": self.index_topk,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate,
            "kv_lora_rank": self.kv_lora_rank,
            "max_position_embeddings": self.positions,
            "moe_intermediate_size": self.moe_intermediate,
            "moe_layer_freq": 1,
            "n_group": self.expert_groups,
            "topk_group": self.chosen_groups,
            "n_routed_experts": self.experts,
            "n_shared_experts": 1,
            "num_experts_per_tok": self.active_experts,
            "norm_topk_prob": True,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_nextn_predict_layers": 1,
            "q_lora_rank": self.q_lora_rank,
            "qk_nope_head_dim": self.qk_nope_head_dim,
            "qk_rope_head_dim": self.qk_rope_head_dim,
            "v_head_dim": self.v_head_dim,
            "rms_norm_eps": self.rms_norm_eps,
            "routed_scaling_factor": 2.5,
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "vocab_size": self.vocabulary,
            **self.more,
        }


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


_YARN: dict[str, JsonValue] = {
    "type": "yarn",
    "factor": 40,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
}

WIDTHS: dict[str, Widths] = {
    "v3.2": Widths(more={"rope_theta": 10000, "rope_scaling": _YARN}),
    "glm-5": Widths(
        architecture="GlmMoeDsaForCausalLM",
        model_type="glm_moe_dsa",
        layers=78,
        heads=64,
        hidden=6144,
        intermediate=12288,
        expert_groups=1,
        chosen_groups=1,
        vocabulary=154880,
        positions=202752,
        q_lora_rank=2048,
        qk_nope_head_dim=192,
        v_head_dim=256,
        index_heads=32,
        rms_norm_eps=1e-5,
        more={
            "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
            "rope_interleave": True,
            "indexer_rope_interleave": True,
        },
    ),
}
"""Short name → widths (GLM-5: zai-org/GLM-5, and transformers' GlmMoeDsaConfig)."""
