"""Fused selection and transform: sglang-kernel's and flashinfer's (sglang 0.5.16 dsa_topk_backend.py:118, :153)."""

from __future__ import annotations

import importlib

import torch

from dsakernels.candidates.candidate import Call, Candidate, Package
from dsakernels.operators.topk_select import TopkInputs
from dsakernels.shape import Shape

_SGL_KERNEL = Package("sgl_kernel", ("sglang-kernel", "sgl-kernel"), "0.3.21")
_FLASHINFER = Package("flashinfer", ("flashinfer-python",), "0.6.14")


def _sgl_kernel(inputs: TopkInputs) -> Call:
    kernel = importlib.import_module("sgl_kernel").fast_topk_transform_fused
    table = inputs.slots.view(inputs.shape.batch, -1)
    starts = torch.arange(inputs.shape.batch + 1, dtype=torch.int32, device=table.device) * inputs.shape.q_tokens

    def call() -> torch.Tensor:
        answer: torch.Tensor = kernel(
            score=inputs.logits,
            lengths=inputs.lengths,
            page_table_size_1=table,
            cu_seqlens_q=starts,
            topk=inputs.k,
            row_starts=None,
        )
        return answer

    return call


def _flashinfer(inputs: TopkInputs) -> Call:
    kernel = importlib.import_module("flashinfer").top_k_page_table_transform
    table = inputs.slots.view(inputs.shape.batch, -1)
    sequences = torch.arange(inputs.shape.batch, dtype=torch.int32, device=table.device)
    owner = sequences.repeat_interleave(inputs.shape.q_tokens)

    def call() -> torch.Tensor:
        answer: torch.Tensor = kernel(
            inputs.logits, table, inputs.lengths, inputs.k, row_to_batch=owner, dsa_graph_safe=True
        )
        return answer

    return call


def _limit(shape: Shape) -> str | None:
    return None if shape.dimensions.index_topk == 2048 else "only index_topk 2048"


CANDIDATES = (
    Candidate("sgl_kernel", "topk_select", "fast_topk_transform_fused", ("bf16",), _sgl_kernel, gpu=True,
              package=_SGL_KERNEL, limit=_limit),
    Candidate("flashinfer", "topk_select", "top_k_page_table_transform", ("bf16",), _flashinfer, gpu=True,
              package=_FLASHINFER),
)  # fmt: skip
