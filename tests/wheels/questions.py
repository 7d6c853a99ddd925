"""The questions that `run_rules.py` puts before the runtime: every case and its neighbour, and the defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dsabench.model.hardware import HARDWARE, Accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.value import KnobValue
from dsabench.sglang.accepts import from_table
from dsabench.sglang.models import MODELS
from dsabench.sglang.render import render
from dsabench.sglang.rules.resolve import resolve
from dsabench.sglang.rules.setting import Setting
from dsabench.sglang.rules.table import Finding, check
from dsabench.sglang.versions import Version
from sglang_rule_cases import CASES, changed, topology
from sglang_rule_golden import label_of

Aim = Literal["broken", "legal", "default", "random"]


@dataclass(frozen=True)
class Question:
    """One spec or command line put before one version."""

    rule: str
    label: str
    """The rule, with the number of the case where the rule has several."""
    aim: Aim
    version: Version
    device: Accelerator
    spec: RuntimeSpec
    words: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def setting(self) -> Setting:
        """What we think the runtime resolves."""
        assert self.spec.topology is not None
        return resolve(self.spec, self.spec.topology.roles[0], self.version, self.device)

    def finding(self) -> Finding:
        """What the rule says of it."""
        found = check(self.spec, self.version, self.device)
        return next(each for each in found if each.rule == self.rule)


def questions(versions: Iterable[Version]) -> Iterator[Question]:
    """Every case in every version, its neighbour, and the defaults."""
    for version in versions:
        for case in CASES:
            if version not in case.versions():
                continue
            label = label_of(case)
            yield question_of((case.rule, label), "broken", version, case.device, case.broken)
            change: Mapping[str, KnobValue | None] | None = case.legal
            if change is None:
                findings = check(case.broken, version, case.device)
                change = next(found.change for found in findings if found.rule == case.rule)
            legal = case.spec(changed(case.knobs, change), legal=True)
            yield question_of((case.rule, label), "legal", version, case.legal_device, legal)
        for device in HARDWARE.values():
            for dtype in ("auto", "bfloat16", "fp8_e4m3"):
                knobs = {"tp_size": 8, "kv_cache_dtype": dtype}
                if device.platform != "npu":
                    spec = RuntimeSpec(kind="sglang", model="v3.2", topology=topology("server", 1, knobs))
                    name = f"{device.name} {dtype}"
                    yield question_of((name, name), "default", version, device, spec)


def question_of(name: tuple[str, str], aim: Aim, version: Version, device: Accelerator, spec: RuntimeSpec) -> Question:
    """The question that the first role of a spec is; `name` is the rule's and the label."""
    rule, label = name
    assert spec.topology is not None
    role = spec.topology.roles[0]
    rendered = render({**spec.knobs, **role.knobs}, {**spec.env, **role.env}, from_table(version))
    words = list(rendered.words)
    if role.role != "server":
        words += ["--disaggregation-mode", role.role]
    if role.nodes > 1:
        words += ["--nnodes", str(role.nodes), "--node-rank", "0", "--dist-init-addr", "127.0.0.1:20000"]
    return Question(rule, label, aim, version, device, spec, tuple(words), rendered.env)


def config_of(name: str, version: Version) -> dict[str, Any]:
    """A config.json of that model, as the version wants to read it."""
    model = MODELS[name]
    native = version >= (0, 5, 12) and not model.is_glm
    architecture = model.architecture if native or model.is_glm else "DeepseekV3ForCausalLM"
    return {
        "architectures": [architecture],
        "model_type": "deepseek_v32" if native else "deepseek_v3",
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.heads,
        "n_routed_experts": model.experts,
        "index_topk": model.index_topk,
        "index_head_dim": model.index_head_dim,
        "index_n_heads": model.index_heads,
        "kv_lora_rank": model.kv_lora_rank,
        "num_nextn_predict_layers": 1,
        "max_position_embeddings": model.positions,
        **_WIDTHS,
        **_QUANTIZATIONS[model.weights],
    }


_QUANTIZATIONS: dict[str, dict[str, Any]] = {
    name: {"quantization_config": {"quant_method": method, **more}}
    for name, method, more in (
        ("fp8", "fp8", {"fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}),
        ("nvfp4", "modelopt_fp4", {"quant_algo": "NVFP4", "kv_cache_scheme": None, "ignore": []}),
        ("mxfp4", "quark", {}),
    )
} | {"bf16": {}}
"""Format of the weights → how a config.json says it."""

_WIDTHS: dict[str, Any] = {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "n_shared_experts": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "rope_theta": 10000,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "rope_scaling": None,
}
