"""The cases of the rules about experts: their kernels, number formats and exchanges."""

from __future__ import annotations

from sglang_case import DP8, TP8, Case

NVFP4 = {"model": "v3.2-nvfp4", "hardware": "b200"}
V2 = {**DP8, "moe_a2a_backend": "deepep_v2", "chunked_prefill_size": 1024}
"""DeepEP's second version with as many tokens as it has room for."""

CUTEDSL = {"tp_size": 4, "moe_runner_backend": "flashinfer_cutedsl", "moe_a2a_backend": "deepep"}
FED = {**DP8, "moe_a2a_backend": "flashinfer"}

EXPERT_CASES: tuple[Case, ...] = (
    Case(
        "MO08",
        {"tp_size": 4, "quantization": "modelopt_fp4", "moe_runner_backend": "deep_gemm"},
        model="v3.2-nvfp4",
        hardware="b200",
    ),
    Case("MO09", {"tp_size": 4}, model="v3.2-nvfp4", hardware="b200"),
    # number formats
    # late kernels
    Case("MO24", {**TP8, "moe_runner_backend": "experimental_sgl_marlin", "moe_a2a_backend": "deepep"}),
    # late exchanges
)
