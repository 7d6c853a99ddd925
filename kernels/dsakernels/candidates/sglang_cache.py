"""sglang's Triton kernels that quantise and dequantise the cache (kernels/ops/attention/dsa)."""

from __future__ import annotations

import importlib

import torch

from dsakernels.candidates.candidate import Call, Candidate, Package
from dsakernels.operators.kv_dequantise import DequantiseInputs
from dsakernels.operators.kv_quantise import QuantiseInputs
from dsakernels.shape import Shape

_QUANTISE = Package("sglang.kernels.ops.attention.dsa.quant_k_cache", ("sglang",), "0.5.16")
_DEQUANTISE = Package("sglang.kernels.ops.attention.dsa.dequant_k_cache", ("sglang",), "0.5.16")


def _quantise(inputs: QuantiseInputs) -> Call:
    kernel = importlib.import_module(_QUANTISE.module).quantize_k_cache
    rows = inputs.rows.view(len(inputs.rows), 1, 1, -1)

    def call() -> torch.Tensor:
        packed: torch.Tensor = kernel(rows)
        return packed.view(torch.uint8).view(len(inputs.rows), -1)

    return call


def _dequantise(inputs: DequantiseInputs) -> Call:
    kernel = importlib.import_module(_DEQUANTISE.module).dequantize_k_cache_paged
    cache = inputs.cache.view(torch.float8_e4m3fn).unsqueeze(1)

    def call() -> torch.Tensor:
        rows: torch.Tensor = kernel(cache, inputs.slots)
        return rows.view(len(inputs.slots), -1)

    return call


def _limit(shape: Shape) -> str | None:
    return None if shape.dimensions.packed_bytes == 656 else "only rows of 656 bytes"


CANDIDATES = (
    Candidate("sglang_triton", "kv_quantise", "quantize_k_cache", ("fp8",), _quantise, gpu=True, package=_QUANTISE,
              limit=_limit),
    Candidate("sglang_triton", "kv_dequantise", "dequantize_k_cache_paged", ("fp8",), _dequantise, gpu=True,
              package=_DEQUANTISE, limit=_limit),
)  # fmt: skip
