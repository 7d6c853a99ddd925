"""DeepGEMM's two indexer kernels, as sglang calls them (0.5.16 dsa_indexer.py:967, :1213)."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from dsakernels.candidates.candidate import Call, KernelCandidate, RequiredPackage
from dsakernels.inputs import PAGE
from dsakernels.operators.indexer import IndexerInputs, paged_keys
from dsakernels.shape import OperatorShape

_PACKAGE = RequiredPackage("deep_gemm", ("sgl-deep-gemm", "deep-gemm", "sglang-kernel", "sgl-kernel"), "0.0.1")
"""sglang 0.5.16 has it from sgl-deep-gemm 0.1.4; older ones brought it with sgl-kernel."""


def _ragged(inputs: IndexerInputs) -> Call:
    """Logits [T, B · L]: a column is a key of the batch, so with several sequences most are not computed."""
    module = importlib.import_module("deep_gemm")
    keys, starts, ends = (inputs.k, inputs.scale), inputs.starts, inputs.ends

    def call() -> torch.Tensor:
        answer: torch.Tensor = module.fp8_mqa_logits(inputs.q, keys, inputs.weights, starts, ends, clean_logits=False)
        return answer

    return call


def _paged(inputs: IndexerInputs) -> Call:
    """Each query is a sequence of its own, with the page table of its sequence, as sglang has it on Hopper.

    (On Blackwell a verify step's queries are one call of several: not done here.)
    """
    module, shape = importlib.import_module("deep_gemm"), inputs.shape
    pages = paged_keys(inputs).view(inputs.table.numel(), PAGE, 1, -1)
    lengths = inputs.lengths.int().unsqueeze(1)
    table = inputs.table.repeat_interleave(shape.q_tokens, 0)
    schedule = module.get_paged_mqa_logits_metadata(lengths, PAGE, module.get_num_sms())
    longest = table.shape[1] * PAGE
    q = inputs.q.unsqueeze(1)

    def call() -> torch.Tensor:
        answer: torch.Tensor = module.fp8_paged_mqa_logits(
            q, pages, inputs.weights, lengths, table, schedule, longest, clean_logits=False
        )
        return answer

    return call


def _one_sequence(shape: OperatorShape) -> str | None:
    return None if shape.batch == 1 else "its columns are of the whole batch: only one sequence is compared"


_WHERE: dict[str, Any] = {"archs": ("sm90", "sm100", "sm103"), "package": _PACKAGE, "gpu": True}
CANDIDATES = (
    KernelCandidate("deep_gemm", "indexer_ragged", "fp8_mqa_logits", ("fp8",), _ragged, limit=_one_sequence, **_WHERE),
    KernelCandidate("deep_gemm", "indexer_paged", "fp8_paged_mqa_logits", ("fp8",), _paged, **_WHERE),
)
