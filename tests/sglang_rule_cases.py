"""One minimal spec per rule of `dsabench.sglang.rules`, which breaks it, and a neighbour that does not.

Used by the unit tests and by `wheels/check_rules.py`, which puts their neighbours before the runtime's own code.
"""

from __future__ import annotations

from sglang_case import (
    BF16,
    BY_ID,
    CP8,
    DP8,
    FIVE_LAYERS,
    FP8,
    HISPARSE,
    MTP,
    TP8,
    Case,
    both,
    changed,
    topology,
    v,
)
from sglang_expert_cases import EXPERT_CASES

__all__ = ["BY_ID", "CASES", "Case", "changed", "topology"]

ADAPTIVE = {**MTP, "speculative_adaptive": True}
SHARDED = {**FP8, **both("trtllm"), "kv_cache_sharding": True, "attn_cp_size": 8}

CASES: tuple[Case, ...] = (
    # models and memory
    Case("MD01", {"tp_size": 4}, model="v3.2-nvfp4", legal={}, legal_hardware="b200"),
    Case("MD02", TP8, model="v3.2-mxfp4", legal={}, legal_hardware="mi300x"),
    Case("MD03", {**TP8, "tool_call_parser": "deepseekv32"}, model="v3.2-speciale"),
    Case("MD04", {**TP8, "tool_call_parser": "deepseekv31"}),
    Case("MM01", {"tp_size": 2}),
    Case("MR01", {**DP8, "max_running_requests": 4}),
    # KV cache
    Case("KV03", {**TP8, **FP8, "model_overrides": '{"kv_lora_rank": 448}'}),
    Case(
        "SL02", {**TP8, **FP8, "prefill_backend": "flashmla_kv", "decode_backend": "trtllm"}, hardware="b200", last=v(9)
    ),
    Case("SL02", {**TP8, **FP8, "decode_backend": "trtllm"}, first=v(10), last=v(10)),
    Case("SL02", {**TP8, **FP8, "prefill_backend": "flashmla_kv"}, hardware="b200", first=v(11)),
    # indexer
    Case("IX01", {**TP8, "model_overrides": '{"index_head_dim": 64}'}, legal={"model_overrides": None}),
    Case("IX03", {**TP8, "index_topk_pattern": "FSX"}),
    Case("IX03", {**TP8, "index_topk_pattern": "S" * 78}, model="glm-5"),
    Case("IX04", {**TP8}, {}, model="glm-5.2", last=v(12), legal_model="glm-5"),
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
    # attention kernels
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
    Case("BE12", {**TP8, **FP8, **both("trtllm")}, model="glm-5", hardware="rtx-pro-6000"),
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
    Case("CP18", {**CP8, "pp_size": 2}, nodes=2, legal={}, legal_hardware="h20"),
    # parallel sizes
    Case("PP01", {**TP8, "pp_size": 2, "pp_layer_partition": "20,20,21"}, nodes=2),
    Case("PP02", {**TP8, "pp_size": 2, "pp_layer_partition": "30,30"}, nodes=2),
    Case("PP03", {**TP8, "pp_size": 2, "pp_layer_partition": "half,half"}, nodes=2),
    # last checks
    Case("MP04", {**TP8, "ep_size": 3}),
    Case("MP04", {**TP8, "ep_size": 16}),
    # speculative decoding
    Case("SP16", {**ADAPTIVE, "speculative_adaptive_config": '{"1": {"candidate_steps": [3]}}'}),
    # HiSparse
    Case("HS07", {**HISPARSE, "hisparse_top_k": 2048, "hisparse_device_buffer_size": 1024}),
    Case("HS08", {**HISPARSE, "hisparse_swap_in_block_size": 2048}),
    Case("HS12", {**HISPARSE, **MTP, "speculative_num_steps": 5, "speculative_num_draft_tokens": 6}),
    Case("HS13", {**HISPARSE, **MTP, "model_overrides": '{"index_topk": 4096}'}, {"model_overrides": None}),
    Case("HS14", {**HISPARSE, **MTP, "max_running_requests": 8192}),
    Case("HS18", {**HISPARSE, **MTP, "transfer_backend": "nixl"}, role="decode"),
    Case("SL08", {**HISPARSE, "hisparse_top_k": 512, "hisparse_device_buffer_size": 1024}),
    Case("HS20", {**HISPARSE, "hisparse_top_k": 1024}),
    Case("HS21", HISPARSE, legal={"hisparse": None}),
    Case(
        "SP18",
        {"tp_size": 8, "dp_size": 2, "dp_attention": True, "speculative_algorithm": "EAGLE"},
        model="glm-5.2",
        first=v(14),
        last=v(15),
    ),
    Case("HS22", HISPARSE, role="decode", legal={"hisparse": None}),
    Case("HS23", {**HISPARSE, "hisparse_host_to_device_ratio": 10}),
    Case("HS24", {**HISPARSE, **FP8}),
    # disaggregation
    Case("PD06", {**TP8, **FP8}, role="decode"),
    Case("PD07", {**TP8, **FP8, **both("flashmla_kv")}, role="decode", hardware="b200", first=v(11)),
    Case("PD07", {**TP8, **FP8, **both("trtllm")}, role="decode", peer=FP8, first=v(10), last=v(10)),
    Case("PD07", {**TP8, **FP8, **both("trtllm")}, role="decode", hardware="b200", last=v(9)),
    # flags
    Case("FL09", {**TP8, "cuda_graph": False}),
    *EXPERT_CASES,
)
