"""Our own Triton kernels, for any GPU: what a machine without FlashMLA or DeepGEMM can run."""

from __future__ import annotations

import torch

from dsakernels.candidates.candidate import Call, KernelCandidate, RequiredPackage
from dsakernels.operators.indexer import IndexerInputs
from dsakernels.operators.sparse_attention import SparseInputs
from dsakernels.shape import OperatorShape
from dsakernels.triton_kernels.blocking import parts_for

_PACKAGE = RequiredPackage("triton", ("triton", "pytorch-triton-rocm"), "3.3")


def _attention(inputs: SparseInputs) -> Call:
    """Reads the pool in place; an fp8 cache is dequantised row by row as it is read."""
    from dsakernels.triton_kernels import sparse_attention  # noqa: PLC0415  (needs Triton)

    shape, latent = inputs.shape, inputs.layout.latent
    processors = torch.cuda.get_device_properties().multi_processor_count if inputs.q.is_cuda else 1
    parts = parts_for(shape.total_q, shape.heads, inputs.indices.shape[1], processors)
    return lambda: sparse_attention.attend(
        inputs.q, inputs.cache, inputs.indices, latent=latent, scale=inputs.scale, parts=parts
    )


def _logits(inputs: IndexerInputs) -> Call:
    """Keys in the order of the sequences: what the gather of the ragged path leaves."""
    from dsakernels.triton_kernels import indexer  # noqa: PLC0415  (needs Triton)

    rows = torch.arange(inputs.shape.total_kv, dtype=torch.int32, device=inputs.q.device)
    return lambda: indexer.logits(inputs.q, inputs.k, inputs.scale, inputs.weights, rows, batch=inputs.shape.batch)


def _limit(shape: OperatorShape) -> str | None:
    return None if shape.dimensions.index_heads >= 16 else "needs 16 or more indexer heads"


CANDIDATES = (
    *(
        KernelCandidate("triton", operator, "our portable kernel", ("bf16", "fp8"), _attention, gpu=True, package=_PACKAGE)
        for operator in ("sparse_prefill", "sparse_decode", "mtp_verify")
    ),
    *(
        KernelCandidate("triton", operator, "our portable kernel", ("bf16", "fp8"), _logits, gpu=True, package=_PACKAGE,
                  limit=_limit)
        for operator in ("indexer_ragged", "indexer_paged")
    ),
)  # fmt: skip
