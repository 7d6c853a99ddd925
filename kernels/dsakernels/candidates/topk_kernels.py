"""Fused selection and transform: sglang-kernel's, flashinfer's and sglang's own for decode (0.5.16 dsa_topk_backend.py).

sglang 0.5.16 takes its own (`topk_transform_512_v2`, on by default) where each query has a page table of its own, as
in decode and verify, and `fast_topk_transform_fused` for a prefill chunk.
"""

from __future__ import annotations

import importlib

import torch

from dsakernels.candidates.candidate import Call, KernelCandidate, RequiredPackage, only_topk_2048
from dsakernels.inputs import PAGE
from dsakernels.operators.topk_select import TopkInputs
from dsakernels.shape import OperatorShape

_SGL_KERNEL = RequiredPackage("sgl_kernel", ("sglang-kernel", "sgl-kernel"), "0.3.21")
_SGLANG = RequiredPackage("sglang.jit_kernel.dsv4.topk", ("sglang",), "0.5.16")
_FLASHINFER = RequiredPackage("flashinfer", ("flashinfer-python",), "0.6.14")


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


def _sglang_v2(inputs: TopkInputs) -> Call:
    """Reads the table of 64-token pages; its plan is made once a step."""
    module = importlib.import_module(_SGLANG.module)
    shape = inputs.shape
    pages = inputs.slots.view(shape.batch, -1)[:, ::PAGE] // PAGE
    table = pages.repeat_interleave(shape.q_tokens, 0).contiguous()
    plan = module.plan_topk_v2(inputs.lengths)

    def call() -> torch.Tensor:
        out = inputs.logits.new_full((shape.total_q, inputs.k), -1, dtype=torch.int32)
        module.topk_transform_512_v2(inputs.logits, inputs.lengths, table, out, PAGE, plan)
        return out

    return call


def _decode_shaped(shape: OperatorShape) -> str | None:
    if shape.q_tokens > 4:
        return "the runtime uses it for decode and verify"
    return only_topk_2048(shape) or (None if shape.kv_tokens % 4 == 0 else "rows of logits must be aligned to 16 bytes")


CANDIDATES = (
    KernelCandidate("sgl_kernel", "topk_select", "fast_topk_transform_fused", ("bf16",), _sgl_kernel, gpu=True,
              package=_SGL_KERNEL, limit=only_topk_2048),
    KernelCandidate("flashinfer", "topk_select", "top_k_page_table_transform", ("bf16",), _flashinfer, gpu=True,
              package=_FLASHINFER),
    KernelCandidate("sglang_v2", "topk_select", "topk_transform_512_v2", ("bf16",), _sglang_v2, gpu=True, package=_SGLANG,
              limit=_decode_shaped),
)  # fmt: skip
