"""The cases of the rules about experts: their kernels, number formats and exchanges."""

from __future__ import annotations

from sglang_case import DP8, MTP, TP8, Case, v

NVFP4 = {"model": "v3.2-nvfp4", "hardware": "b200"}
V2 = {**DP8, "moe_a2a_backend": "deepep_v2", "chunked_prefill_size": 1024}
"""DeepEP's second version with as many tokens as it has room for."""

CUTEDSL = {"tp_size": 4, "moe_runner_backend": "flashinfer_cutedsl", "moe_a2a_backend": "deepep"}
FED = {**DP8, "moe_a2a_backend": "flashinfer"}

EXPERT_CASES: tuple[Case, ...] = (
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
    # number formats
    Case("MO16", {**TP8, "quantization": "nvfp4_online"}),
    Case("MO17", {**TP8, "quantization": "nvfp4_online", "moe_runner_backend": "marlin"}, hardware="b200"),
    Case("MO18", {**TP8, "quantization": "modelopt_fp8"}, model="glm-5-bf16", hardware="mi300x"),
    Case("MO18", {**TP8, "quantization": "nvfp4_online"}, hardware="mi300x", first=v(14)),
    Case("MO19", {**TP8, "quantization": "marlin"}, model="glm-5-bf16", hardware="b200", last=v(19)),
    Case("MO19", {**TP8, "quantization": "gptq"}, model="glm-5-bf16", hardware="b200", first=v(20)),
    # late kernels
    Case("MO20", {**TP8, "moe_runner_backend": "flashinfer_trtllm_routed"}, model="v3.2-mxfp4", hardware="b200"),
    Case("MO21", {"tp_size": 4, "moe_runner_backend": "flashinfer_cutedsl", "moe_a2a_backend": "mooncake"}, **NVFP4),
    Case(
        "MO22",
        {**CUTEDSL, "deepep_mode": "normal"},
        **NVFP4,
    ),
    Case("MO23", {**CUTEDSL, **TP8, "quantization": "nvfp4_online"}, hardware="b200"),
    Case("MO24", {**TP8, "moe_runner_backend": "experimental_sgl_marlin", "moe_a2a_backend": "deepep"}),
    Case("MO25", {**TP8, "moe_runner_backend": "lora_triton"}),
    Case("MO26", {**TP8, "moe_runner_backend": "megamoe", "moe_a2a_backend": "deepep"}),
    # late exchanges
    Case("MO27", {**DP8, "moe_a2a_backend": "pplx", "deepep_mode": "normal", "chunked_prefill_size": 1024}),
    Case("MO28", {**DP8, "moe_a2a_backend": "pplx", "moe_runner_backend": "triton", "chunked_prefill_size": 1024}),
    Case("MO29", {**V2, "moe_runner_backend": "triton", "cuda_graph_max_bs": 64}, model="glm-5"),
    Case("MO30", {**V2, "two_batch_overlap": True, "cuda_graph_max_bs": 64}, model="glm-5"),
    Case("MO31", {**MTP, **V2}, model="glm-5"),
    Case("MO32", {**TP8, "moe_a2a_backend": "deepep_v2"}, model="glm-5"),
    Case("MO33", V2, model="glm-5"),
    Case("MO34", {**TP8, "moe_a2a_backend": "megamoe", "single_batch_overlap": True}),
    Case("MO35", {**TP8, "moe_runner_backend": "megamoe"}, hardware="rtx6000"),
    Case("MO36", {**DP8, "moe_a2a_backend": "flashinfer_megamoe"}),
    Case("MO37", {**DP8, "moe_a2a_backend": "flashinfer_megamoe"}, model="glm-5"),
    Case("MO38", {**TP8, "moe_a2a_backend": "flashinfer_megamoe"}, **NVFP4),
    Case("MO39", {**DP8, "moe_a2a_backend": "flashinfer_megamoe", "moe_runner_backend": "triton"}, **NVFP4),
    Case("MO40", {**FED, "moe_runner_backend": "flashinfer_cutlass", "chunked_prefill_size": -1}),
    Case("MO41", {**FED, "moe_runner_backend": "flashinfer_cutedsl"}, **NVFP4),
    Case("MO43", {**V2, "cuda_graph_max_bs": 64}, model="glm-5", nodes=2),
    Case("MO42", {**TP8, "moe_a2a_backend": "ascend_fuseep"}),
)
