"""sglang's own kernels around the cache: quantise and dequantise (Triton), and HiSparse's swap-in (CUDA).

Swap-in is hit test, LRU order and copies in one launch, a block of threads a sequence. As
`HiSparseCoordinator.swap_in_selected_pages` calls it (sglang 0.5.16 managers/hisparse_coordinator.py:802): the answer,
a tensor that is kept, is overwritten with -1, then `load_cache_to_device_buffer_mla` runs, compiled with nvcc when first
used (jit_kernel/csrc/hisparse.cuh). It checks no dtype and no shape, so what it takes is written at each tensor below.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import torch

from dsakernels.candidates.candidate import Call, KernelCandidate, RequiredPackage, RestoringCall
from dsakernels.operators.hisparse_swap_in import SwapInInputs, buffered
from dsakernels.operators.kv_pack import DequantiseInputs, QuantiseInputs
from dsakernels.shape import OperatorShape

_QUANTISE = RequiredPackage("sglang.kernels.ops.attention.dsa.quant_k_cache", ("sglang",), "0.5.16")
_DEQUANTISE = RequiredPackage("sglang.kernels.ops.attention.dsa.dequant_k_cache", ("sglang",), "0.5.16")
_SWAP_IN = RequiredPackage("sglang.jit_kernel.hisparse", ("sglang",), "0.5.16")
_THREADS = 960
"""`swap_in_block_size` unless told, since 0.5.15."""


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


def _only_656_bytes(shape: OperatorShape) -> str | None:
    return None if shape.dimensions.packed_bytes == 656 else "only rows of 656 bytes"


@dataclass(frozen=True, slots=True)
class _LruTables:
    """What the coordinator keeps of a layer and request, and the kernel changes: rows of S + PAGE slots, S of them in turn."""

    tokens: torch.Tensor
    """[B, S + PAGE] int32: the token of each slot; of the last page, where the newest token is, -1."""
    order: torch.Tensor
    """[B, S] int16: slots, the least recently used first."""

    @classmethod
    def of(cls, inputs: SwapInInputs) -> _LruTables:
        """Those that say what `held` and `oldest` say."""
        batch, size = inputs.oldest.shape
        shape = batch, len(inputs.buffer) // batch
        tokens = torch.full(shape, -1, dtype=torch.int32, device=inputs.held.device)
        sequences, held = (inputs.held >= 0).nonzero(as_tuple=True)
        tokens[sequences, inputs.held[sequences, held].long()] = held.int()
        tokens[:, size:] = -1
        return cls(tokens, inputs.oldest.to(torch.int16))

    def copy(self) -> _LruTables:
        """Of its own memory."""
        return _LruTables(self.tokens.clone(), self.order.clone())

    def put_back(self, before: _LruTables) -> None:
        """As they were."""
        self.tokens.copy_(before.tokens)
        self.order.copy_(before.order)


def _swap_in(inputs: SwapInInputs) -> RestoringCall:
    """A call changes both tables: the next one would find all that is wanted, and copy nothing."""
    kernel = importlib.import_module(_SWAP_IN.module).load_cache_to_device_buffer_mla
    shape, device = inputs.shape, inputs.buffer.device
    before = _LruTables.of(inputs)
    now = before.copy()
    answer = torch.empty_like(inputs.wanted)
    slots = torch.arange(len(inputs.buffer), dtype=torch.int32, device=device).view_as(now.tokens)
    host_rows = torch.arange(shape.total_kv, device=device).view(shape.batch, -1)  # int64
    requests = torch.arange(shape.batch, device=device)  # int64, as the two of a batch are there
    lengths = torch.full_like(requests, shape.kv_tokens)
    number = torch.tensor([shape.batch], dtype=torch.int32, device=device)

    def run() -> torch.Tensor:
        answer.fill_(-1)
        kernel(
            top_k_tokens=inputs.wanted,
            device_buffer_tokens=now.tokens,
            host_cache_locs=host_rows,
            device_buffer_locs=slots,
            host_cache=inputs.host,
            device_buffer=inputs.buffer,
            top_k_device_locs=answer,
            req_pool_indices=requests,
            seq_lens=lengths,
            lru_slots=now.order,
            item_size_bytes=inputs.host.shape[1] * inputs.host.element_size(),
            num_top_k=shape.dimensions.index_topk,
            hot_buffer_size=buffered(shape),
            page_size=1,
            block_size=_THREADS,
            num_real_reqs=number,
        )
        return answer

    return RestoringCall(run, lambda: now.put_back(before))


def _only_beyond_the_buffer(shape: OperatorShape) -> str | None:
    if shape.kv_tokens <= buffered(shape):
        return f"sequences of up to {buffered(shape)} tokens lie in the buffer from end to end: nothing is swapped in"
    return None


CANDIDATES = (
    KernelCandidate("sglang_triton", "kv_quantise", "quantize_k_cache", ("fp8",), _quantise, gpu=True, package=_QUANTISE,
              limit=_only_656_bytes),
    KernelCandidate("sglang_triton", "kv_dequantise", "dequantize_k_cache_paged", ("fp8",), _dequantise, gpu=True,
              package=_DEQUANTISE, limit=_only_656_bytes),
    KernelCandidate("sglang_jit", "hisparse_swap_in", f"load_cache_to_device_buffer_mla, {_THREADS} threads a sequence",
              ("bf16", "fp8"), _swap_in, gpu=True, package=_SWAP_IN, limit=_only_beyond_the_buffer),
)  # fmt: skip
