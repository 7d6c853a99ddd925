"""One minimal spec per rule of `dsabench.runtimes.sglang.rules`, which breaks it, and a neighbour that does not.

Used by the unit tests and by `wheels/run_rules.py`, which puts the same specs before the runtime's own code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dsabench.model.knobs import KnobValue
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import Role, RoleName, Router, Topology
from dsabench.runtimes.sglang.hardware import HARDWARE, Accelerator
from dsabench.runtimes.sglang.rules import RULES, Rule
from dsabench.runtimes.sglang.rules.rule import READ
from dsabench.runtimes.sglang.versions import Version

BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}

DEVICES: dict[str, Accelerator] = HARDWARE | {
    "a100": Accelerator("a100", "NVIDIA A100", "cuda", 80, (8, 0)),
    "rtx6000": Accelerator("rtx6000", "NVIDIA RTX PRO 6000", "cuda", 96, (12, 0)),
}
"""Beside the documents' hardware two that only rules know."""

Knobs = Mapping[str, KnobValue | None]


@dataclass(frozen=True)
class Case:
    """A spec that breaks `rule`. `legal` are the knobs that mend it; None takes the rule's own change."""

    rule: str
    knobs: dict[str, KnobValue] = field(default_factory=dict)
    legal: dict[str, KnobValue | None] | None = None
    model: str = "v3.2"
    hardware: str = "h200"
    role: RoleName = "server"
    nodes: int = 1
    env: dict[str, str] = field(default_factory=dict)
    first: Version | None = None
    last: Version | None = None
    legal_model: str | None = None
    legal_hardware: str | None = None
    peer: dict[str, KnobValue] = field(default_factory=dict)
    """Settings of the other half of disaggregation."""

    def spec(self, knobs: Mapping[str, KnobValue], *, legal: bool = False) -> RuntimeSpec:
        """The spec with these knobs on the case's role."""
        return RuntimeSpec(
            kind="sglang",
            model=self.legal_model if legal and self.legal_model else self.model,
            env={} if legal else self.env,
            topology=topology(self.role, self.nodes, knobs, self.peer),
        )

    @property
    def broken(self) -> RuntimeSpec:
        """The spec that breaks the rule."""
        return self.spec(self.knobs)

    @property
    def device(self) -> Accelerator:
        """What it runs on."""
        return DEVICES[self.hardware]

    @property
    def legal_device(self) -> Accelerator:
        """What the neighbour runs on."""
        return DEVICES[self.legal_hardware or self.hardware]

    def versions(self) -> list[Version]:
        """The versions that were read and in which the rule and this case hold."""
        rule = BY_ID[self.rule]
        return [
            version
            for version in READ
            if rule.holds_in(version)
            and (self.first is None or version >= self.first)
            and (self.last is None or version <= self.last)
        ]


def topology(
    role: RoleName, nodes: int, knobs: Mapping[str, KnobValue], peer: Mapping[str, KnobValue] = MappingProxyType({})
) -> Topology:
    """A deployment in which the role has these knobs; disaggregated roles get their other half, bare but for `peer`."""
    roles = [Role(role=role, nodes=nodes, knobs=knobs)]
    if role != "server":
        roles.append(Role(role="decode" if role == "prefill" else "prefill", knobs={"tp_size": 8, **peer}))
    return Topology(roles=tuple(roles), router=Router() if role != "server" else None)


def changed(knobs: Mapping[str, KnobValue], change: Knobs) -> dict[str, KnobValue]:
    """Knobs after a change; None takes one out."""
    return {name: value for name, value in {**knobs, **change}.items() if value is not None}


def v(patch: int) -> Version:
    return Version(0, 5, patch)


TP8: dict[str, KnobValue] = {"tp_size": 8}
DP8: dict[str, KnobValue] = {"tp_size": 8, "dp_size": 8, "dp_attention": True}
CP8: dict[str, KnobValue] = {"tp_size": 8, "prefill_cp": True, "cp_mode": "interleave"}
ZIGZAG: dict[str, KnobValue] = {**CP8, "cp_mode": "zigzag"}
MTP: dict[str, KnobValue] = {
    **TP8,
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "max_running_requests": 32,
}
HISPARSE: dict[str, KnobValue] = {**TP8, "hisparse": True, "prefix_cache": False}
FP8: dict[str, KnobValue] = {"kv_cache_dtype": "fp8_e4m3"}
BF16: dict[str, KnobValue] = {"kv_cache_dtype": "bfloat16"}
FIVE_LAYERS: dict[str, KnobValue] = {"model_overrides": '{"num_hidden_layers": 5}'}
SINK = {"model_overrides": '{"learnable_sink": true}'}


def both(kernel: str) -> dict[str, KnobValue]:
    """The kernel for prefill and decode."""
    return {"prefill_backend": kernel, "decode_backend": kernel}


CASES: tuple[Case, ...] = (
    # models and memory
    Case("MD01", {"tp_size": 4}, model="v3.2-nvfp4", legal={}, legal_hardware="b200"),
    Case("MD02", TP8, model="v3.2-mxfp4", legal={}, legal_hardware="mi300x"),
    Case("MD03", {**TP8, "tool_call_parser": "deepseekv32"}, model="v3.2-speciale"),
    Case("MD04", {**TP8, "tool_call_parser": "deepseekv31"}),
    Case("MM01", {"tp_size": 2}),
    # KV cache
    Case("KV01", {**TP8, "kv_cache_dtype": "fp8_e5m2"}),
    Case("KV02", {**TP8, "prefill_backend": "flashmla_sparse"}),
    Case("KV03", {**TP8, **FP8, "model_overrides": '{"kv_lora_rank": 448}'}),
    Case("KV04", {**TP8, **FP8, **SINK}),
    Case(
        "SL02", {**TP8, **FP8, "prefill_backend": "flashmla_kv", "decode_backend": "trtllm"}, hardware="b200", last=v(9)
    ),
    Case("SL02", {**TP8, **FP8, "decode_backend": "trtllm"}, first=v(10), last=v(10)),
    Case("SL02", {**TP8, **FP8, "prefill_backend": "flashmla_kv"}, hardware="b200", first=v(11)),
    Case("PG01", {**TP8, "page_size": 128}),
    Case("PG02", {**TP8, **both("tilelang"), **BF16, "page_size": 16}, hardware="mi300x"),
    Case("PG03", {**ZIGZAG, **FP8}),
    Case("SL01", {**TP8, **FP8, "prefill_backend": "flashmla_sparse"}, hardware="b200"),
    # indexer
    Case("IX01", {**TP8, "model_overrides": '{"index_head_dim": 64}'}, legal={"model_overrides": None}),
    Case("IX03", {**TP8, "index_topk_pattern": "FSX"}),
    Case("IX03", {**TP8, "index_topk_pattern": "S" * 78}, model="glm-5"),
    Case("TK01", {**TP8, "model_overrides": '{"index_topk": 1024}', "fuse_topk": False}),
    Case("SL09", {**TP8, "model_overrides": '{"index_topk": 1024}'}, last=v(19)),
    Case("SL09", {**TP8, "model_overrides": '{"index_topk": 4096}'}),
    Case(
        "SL09", {**TP8, **FP8, "prefill_backend": "flashmla_kv", "model_overrides": '{"index_topk": 1024}'}, first=v(20)
    ),
    Case(
        "SL09",
        {**TP8, **FP8, "prefill_backend": "flashmla_sparse", "model_overrides": '{"index_topk": 4096}'},
        {"model_overrides": '{"index_topk": 1024}'},
        first=v(20),
    ),
    Case("MH01", {**TP8, "mha_threshold_tokens": 8192}),
    Case("SL07", {**TP8, "mha_threshold_tokens": 4096}, model="glm-5", hardware="b200"),
    # attention kernels
    Case("FL04", {**TP8, **BF16, "prefill_backend": "triton_sparse_mla"}, last=v(20)),
    Case("FL04", {**TP8, **BF16, "decode_backend": "triton_sparse_mla"}),
    Case("BE01", {**TP8, **BF16, "prefill_backend": "triton"}),
    Case("BE02", {**TP8, **FP8, "prefill_backend": "tilelang"}),
    Case("BE25", {**TP8, **FP8, **both("tilelang")}),
    Case("BE03", {**TP8, **FP8, **both("tilelang"), "dcp_size": 2}),
    Case("BE04", {**TP8, **FP8, **both("tilelang")}, hardware="a100"),
    Case("BE17", {**TP8, **SINK, **BF16, "decode_backend": "fa3"}),
    Case(
        "BE18", {**TP8, "model_overrides": '{"num_attention_heads": 96}', "tp_size": 1}, legal={"model_overrides": None}
    ),
    Case("BE19", {**TP8, **FP8, "decode_backend": "flashmla_auto"}),
    Case("BE24", {**TP8, **BF16, "prefill_backend": "aiter"}),
    Case("BE20", {**TP8, **BF16, "decode_backend": "tilelang"}, hardware="mi300x", last=v(19)),
    Case("BE20", {**TP8, **BF16, "prefill_backend": "fa3"}, hardware="mi300x"),
    Case("SL03", {**TP8, **BF16, "decode_backend": "fa3"}, hardware="b200", last=v(11)),
    Case("SL03", {**TP8, **FP8, **both("trtllm")}),
    Case("SL03", {**TP8, **BF16, "prefill_backend": "aiter"}, first=v(10)),
    Case("SL10", {**TP8, **BF16, "decode_backend": "fa3"}, hardware="b200", first=v(12)),
    Case("SL10", {**TP8, **BF16, "prefill_backend": "fa3"}, hardware="b200", first=v(12)),
    Case("BE21", {**TP8, **BF16, "prefill_backend": "aiter", "decode_backend": "aiter"}, hardware="mi300x"),
    Case("BE22", {**TP8, **FP8, "prefill_backend": "flashmla_auto", "decode_backend": "flashmla_kv"}),
    # kernels and the cache they read
    Case("SL04", {**TP8, **FP8, "decode_backend": "fa3"}),
    Case("SL04", {**TP8, **FP8, "prefill_backend": "flashmla_sparse", "decode_backend": "flashmla_sparse"}),
    Case("SL04", {**TP8, **FP8, "prefill_backend": "fa3", "decode_backend": "flashmla_kv"}),
    Case("SL11", {**TP8, **BF16, **FIVE_LAYERS, **both("flashmla_kv")}),
    Case("SL11", {**TP8, **BF16, **FIVE_LAYERS, "decode_backend": "flashmla_kv", "max_total_tokens": 4_000_000}),
    Case("SL11", {**TP8, **BF16, "decode_backend": "flashmla_kv", "pp_size": 2}, hardware="b200", nodes=2),
    Case("BE26", {**TP8, **BF16, "prefill_backend": "flashmla_kv"}),
    Case("BE26", {**TP8, **FP8, **both("tilelang"), "prefill_backend": "flashmla_kv"}),
    Case("SL12", {**TP8, **BF16, "decode_backend": "flashmla_kv"}),
    Case("SL12", {**TP8, **BF16, **FIVE_LAYERS, **both("flashmla_kv"), "max_total_tokens": 200_000}),
    Case("SL13", {**TP8, **FP8, **FIVE_LAYERS, "prefill_backend": "flashmla_sparse", "decode_backend": "flashmla_kv"}),
    Case("SL13", {**TP8, **FP8, **both("flashmla_kv"), "pp_size": 2}, nodes=2),
    Case("SL14", {**TP8, **FP8, **FIVE_LAYERS, **both("flashmla_kv"), "load_format": "dummy"}),
    # attention backends
    Case("DT02", {**TP8, "deterministic": True}),
    Case("DT03", {**TP8, "attention_backend": "triton"}),
    # late kernels
    Case("BE23", {**TP8, **BF16, "prefill_backend": "flashmla_sparse_q8"}),
    Case(
        "BE06",
        {**TP8, **FP8, "prefill_backend": "flashmla_sparse_q8", "decode_backend": "flashmla_kv"},
        hardware="b200",
    ),
    Case("BE07", {**TP8, **FP8, "prefill_backend": "flashmla_sparse_q8", "mixed_chunk": True}),
    Case("BE09", {**TP8, **FP8, "decode_backend": "flashmla_sparse_q8"}),
    Case("BE10", {**TP8, **FP8, "prefill_backend": "flashmla_sparse_q8", "decode_backend": "trtllm"}),
    Case("BE11", {**TP8, **FP8, **both("flashinfer_sparse_mla")}),
    Case("BE12", {**TP8, **FP8, **both("trtllm")}, model="glm-5", hardware="rtx6000"),
    Case("BE13", {**TP8, **BF16, "prefill_backend": "triton_sparse_mla"}, hardware="mi300x"),
    Case(
        "BE14",
        {**TP8, **BF16, "prefill_backend": "triton_sparse_mla", "decode_backend": "tilelang"},
        hardware="a100",
        legal={},
        legal_hardware="h200",
    ),
    Case("BE15", {**DP8, **BF16, "prefill_backend": "triton_sparse_mla"}),
    Case("BE16", {**TP8, **BF16, "prefill_backend": "triton_sparse_mla", "triton_union": 4}),
    # context parallelism
    Case("CP01", {**CP8, "dp_size": 2, "dp_attention": True}),
    Case("CP02", {**CP8, "tp_size": 4}),
    Case("CP03", {**CP8, "tp_size": 16}, nodes=2),
    Case("CP04", CP8, role="decode"),
    Case("CP05", {**TP8, "attn_cp_size": 3}),
    Case("CP06", {**DP8, "attn_cp_size": 2}),
    Case("CP07", {**TP8, "pp_size": 2, "attn_cp_size": 8}, nodes=2, last=v(9)),
    Case("CP07", {**TP8, "pp_size": 2, "moe_dp_size": 2}, nodes=2),
    Case("CP08", {**TP8, "prefill_cp": True}),
    Case("CP09", {**ZIGZAG, "dp_size": 2, "dp_attention": True}),
    Case("CP10", {**CP8, **both("triton"), **BF16}, hardware="mi300x"),
    Case("CP12", {**TP8, "moe_dp_size": 2}),
    Case("CP13", {**CP8, "dcp_size": 2}),
    Case("CP14", {**TP8, "moe_dp_size": 2, "ep_size": 2}),
    Case("CP15", {**CP8, "attn_cp_size": 4}, last=v(20)),
    Case("CP15", {**ZIGZAG, "attn_cp_size": 4}, model="glm-5"),
    Case("CP16", CP8, legal={"prefill_cp": None, "cp_mode": None}),
    Case("CP17", ZIGZAG),
    Case("CP18", {**CP8, "pp_size": 2}, nodes=2, legal={}, legal_hardware="h20"),
    Case("CP19", {**ZIGZAG, "dp_size": 8, "dp_attention": True}, model="glm-5"),
    Case("CP20", ZIGZAG, role="prefill"),
    Case("SL05", {**ZIGZAG, "moe_a2a_backend": "mooncake"}),
    Case("LS01", {**TP8, "cache_layer_split": True}, role="prefill"),
    Case("LS02", {**CP8, "cache_layer_split": True}),
    Case("LS03", {**CP8, "cache_layer_split": True, "pp_size": 2}, role="prefill", nodes=2),
    # parallel sizes
    Case("DP03", {"tp_size": 8, "dp_size": 3, "dp_attention": True}),
    Case("DP04", {**DP8, "chunked_prefill_size": 8192}, legal={"chunked_prefill_size": None}),
    Case("SL06", {"tp_size": 8, "dp_size": 1, "dp_attention": True}),
    Case("DP05", {"tp_size": 8, "dp_size": 2}),
    Case("MP01", {"tp_size": 8, "moe_dp_size": 3}),
    Case("MP02", {"tp_size": 8, "moe_dp_size": 4, "ep_size": 8}),
    Case("PP01", {**TP8, "pp_size": 2, "pp_layer_partition": "20,20,21"}, nodes=2),
    Case("PP02", {**TP8, "pp_size": 2, "pp_layer_partition": "30,30"}, nodes=2),
    Case("PP03", {**TP8, "pp_size": 2, "pp_layer_partition": "half,half"}, nodes=2),
    Case("PP04", {**TP8, "pp_size": 2, "overlap_schedule": True}, nodes=2),
    Case("DC01", {**TP8, "dcp_size": 2}, role="decode"),
    Case("DC02", {**MTP, "dcp_size": 2, "speculative_eagle_topk": 2}),
    Case("DC03", {**MTP, "dcp_size": 2}),
    Case("CP21", {**CP8, "moe_dense_tp_size": 2}),
    # last checks
    Case("ND01", {"tp_size": 9}, nodes=2),
    Case("DP06", {"tp_size": 8, "dp_size": 2}, nodes=2),
    Case("PP05", {**MTP, "pp_size": 2}, nodes=2),
    Case("PP05", {**TP8, "pp_size": 2, "mixed_chunk": True}, nodes=2, last=v(10)),
    Case("PP06", {**MTP, "speculative_algorithm": "EAGLE3", "pp_size": 2}, nodes=2, role="prefill"),
    Case("PP07", {**MTP, "pp_size": 2}, nodes=2),
    Case("PP07", {**MTP, "pp_size": 2}, nodes=2, role="decode"),
    Case("MP03", {**TP8, "moe_dense_tp_size": 2}),
    Case("MP03", {**TP8, "moe_dense_tp_size": 8}, last=v(12)),
    Case("CH01", {**TP8, "chunked_prefill_size": 1000}),
    Case("CH01", {**DP8, "chunked_prefill_size": 4160}),
    Case("MP04", {**TP8, "ep_size": 3}),
    Case("MP04", {**TP8, "ep_size": 16}),
    Case("CL01", {**TP8, "context_length": 200000}),
    Case("SN01", {**TP8, "served_model_name": "team:v3.2"}),
    # experts
    Case("MO01", {**TP8, "moe_runner_backend": "flashinfer_cutlass"}, hardware="b200"),
    Case("MO01", {**TP8, "moe_runner_backend": "flashinfer_cutlass", "quantization": "fp8"}),
    Case("MO02", {**TP8, "moe_runner_backend": "flashinfer_cutlass", "ep_size": 4}),
    Case(
        "MO02",
        {**TP8, "moe_runner_backend": "flashinfer_cutedsl", "quantization": "modelopt_fp4", "ep_size": 4},
        model="v3.2-nvfp4",
        hardware="b200",
        first=v(11),
    ),
    Case("MO03", {**TP8, "moe_a2a_backend": "deepep", "ep_size": 4}),
    Case("MO04", {**TP8, "moe_runner_backend": "flashinfer_trtllm"}, model="v3.2-mxfp4", hardware="b200"),
    Case("MO10", {**TP8, "quantization": "w4afp8"}),
    Case("MO05", {**TP8, "moe_runner_backend": "flashinfer_cutedsl", "quantization": "fp8"}, hardware="b200"),
    Case("MO06", {**TP8, "moe_runner_backend": "cutlass", "quantization": "fp8", "ep_size": 8}),
    Case("MO07", {**DP8, "moe_a2a_backend": "flashinfer", "moe_runner_backend": "triton"}),
    Case(
        "TB01",
        {**DP8, "moe_a2a_backend": "deepep", "two_batch_overlap": True, "index_topk_pattern": "FS" * 39},
        model="glm-5",
    ),
    Case("TB02", {**TP8, "two_batch_overlap": True}),
    Case("TB03", {**TP8, "two_batch_overlap": True}),
    Case("MO11", {**TP8, "moe_a2a_backend": "mori"}, hardware="mi300x"),
    Case("MO11", {**TP8, "moe_a2a_backend": "mori", "chunked_prefill_size": 8192}, hardware="mi300x"),
    Case("MO12", {**TP8, "moe_a2a_backend": "flashinfer", "moe_runner_backend": "flashinfer_cutlass"}),
    Case("MO13", {**TP8, "moe_a2a_backend": "pplx"}),
    Case("MO14", {**DP8, "moe_a2a_backend": "pplx"}),
    Case("MO15", {**DP8, "moe_a2a_backend": "deepep_v2"}),
    Case("MO15", {**DP8, "moe_a2a_backend": "deepep_v2"}, model="glm-5", last=v(20)),
    Case(
        "MO08",
        {"tp_size": 4, "quantization": "modelopt_fp4", "moe_runner_backend": "deep_gemm"},
        model="v3.2-nvfp4",
        hardware="b200",
    ),
    Case("MO09", {"tp_size": 4}, model="v3.2-nvfp4", hardware="b200"),
    # speculative decoding
    Case("SP01", {**MTP, "speculative_eagle_topk": 2, "speculative_overlap": True}),
    Case("SP02", {**MTP, "speculative_eagle_topk": 2}),
    Case("SP03", {**MTP, "speculative_num_draft_tokens": 6}),
    Case("SP04", changed(MTP, {"max_running_requests": None})),
    Case("SP05", {**MTP, **DP8, "speculative_algorithm": "STANDALONE", "speculative_draft_model": "v3.2"}),
    Case("SP07", MTP, legal={}, env={"SGLANG_ENABLE_SPEC_V2": "1"}),
    Case("SP08", {**TP8, "speculative_algorithm": "NGRAM", "max_running_requests": 32}),
    Case("SP09", changed(MTP, {"speculative_num_steps": None})),
    Case("SP10", changed(MTP, {"speculative_eagle_topk": None})),
    Case("SP11", {**MTP, **DP8, "speculative_adaptive": True}),
    Case("SP12", {**MTP, "mixed_chunk": True}, last=v(18)),
    Case(
        "SP12", {**MTP, "speculative_algorithm": "STANDALONE", "speculative_draft_model": "v3.2", "mixed_chunk": True}
    ),
    Case("SP13", MTP),
    Case("SP14", {**MTP, "speculative_draft_model": "v3.2"}),
    Case("SP15", {**MTP, "speculative_adaptive": True, "speculative_num_steps": 2}),
    Case("SP15", {**MTP, "speculative_adaptive": True, "speculative_num_steps": 5}, last=v(19)),
    # HiSparse
    Case("HS01", {**HISPARSE, "model_overrides": '{"index_topk": null}'}),
    Case("HS02", {**TP8, "hisparse": True}),
    Case("HS03", {**HISPARSE, **BF16, "decode_backend": "fa3"}),
    Case("HS04", {**HISPARSE, **BF16, "decode_backend": "fa3"}),
    Case("HS04", {**HISPARSE, **FP8, "prefill_backend": "flashmla_sparse"}),
    Case("HS07", {**HISPARSE, "hisparse_top_k": 2048, "hisparse_device_buffer_size": 1024}),
    Case("HS08", {**HISPARSE, "hisparse_swap_in_block_size": 2048}),
    Case("HS09", {**HISPARSE, "mixed_chunk": True}),
    Case("HS11", {**HISPARSE, **MTP, "speculative_adaptive": True}),
    Case("HS12", {**HISPARSE, **MTP, "speculative_num_steps": 5, "speculative_num_draft_tokens": 6}),
    Case("HS13", {**HISPARSE, **MTP, "model_overrides": '{"index_topk": 4096}'}, {"model_overrides": None}),
    Case("HS14", {**HISPARSE, **MTP, "max_running_requests": 8192}),
    Case("HS15", {**HISPARSE, "dcp_size": 2}),
    Case("HS16", {**HISPARSE, "decode_prefix_cache": True}, role="decode"),
    Case("HS17", {**HISPARSE, **FP8, **both("tilelang")}),
    Case("HS18", {**HISPARSE, **MTP, "transfer_backend": "nixl"}, role="decode"),
    Case("HS19", {**HISPARSE, "kv_cache_sharding": True}, role="prefill"),
    Case("SL08", {**HISPARSE, "hisparse_top_k": 512, "hisparse_device_buffer_size": 1024}),
    Case("HS20", {**HISPARSE, "hisparse_top_k": 1024}),
    Case("HS21", HISPARSE, legal={"hisparse": None}),
    Case("HS22", HISPARSE, role="decode", legal={"hisparse": None}),
    Case("HS23", {**HISPARSE, "hisparse_host_to_device_ratio": 10}),
    Case("HS24", {**HISPARSE, **FP8}),
    # disaggregation
    Case("PD01", {**TP8, "transfer_backend": "fake"}, role="prefill"),
    Case("KS01", {**TP8, "kv_cache_sharding": True}),
    Case("KS02", {**TP8, "kv_cache_sharding": True}, role="prefill"),
    Case("KS03", {**CP8, "kv_cache_sharding": True}, role="prefill"),
    Case("PD03", {**TP8, "prefix_cache": True}, role="decode"),
    Case("PD04", {**TP8, "decode_prefix_cache": True}, role="decode"),
    Case("PD05", {**TP8, "decode_prefix_cache": True, "transfer_backend": "fake"}, role="decode"),
    Case("PD06", {**TP8, **FP8}, role="decode"),
    Case("PD07", {**TP8, **FP8, **both("flashmla_kv")}, role="decode", hardware="b200", first=v(11)),
    Case("PD07", {**TP8, **FP8, **both("trtllm")}, role="decode", peer=FP8, first=v(10), last=v(10)),
    Case("PD07", {**TP8, **FP8, **both("trtllm")}, role="decode", hardware="b200", last=v(9)),
    Case("PD08", {**MTP, "decode_prefix_cache": True, "transfer_backend": "nixl"}, role="decode", last=v(20)),
    Case(
        "PD08",
        {**TP8, "speculative_algorithm": "NGRAM", "decode_prefix_cache": True, "transfer_backend": "nixl"},
        role="decode",
    ),
    Case("PD09", {**TP8, "decode_prefix_cache": True, "transfer_backend": "mori"}, role="decode"),
    # flags
    Case("FL03", HISPARSE),
    Case("FL07", {**TP8, "tokens_histogram": True}),
    Case("FL08", {**TP8, "tokens_histogram": True}),
)
