"""Lightning-indexer logits of a decode or verify step: few queries for each of many sequences, keys in pages.

Formula, inputs and tolerance are those of `indexer_ragged`. The candidate that reads pages builds them from `k` and
`scale` with `table`: 64 tokens a page, first all keys, then all scales (sglang's index_buf_accessor), 132 bytes a token
at E = 128. Source: DeepGEMM's fp8_paged_mqa_logits.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from dsakernels import shape as shapes
from dsakernels.inputs import PAGE
from dsakernels.operators import indexer_ragged
from dsakernels.operators.indexer_ragged import IndexerInputs
from dsakernels.shape import Shape


def paged_keys(inputs: IndexerInputs) -> torch.Tensor:
    """The fp8 keys and their scales as the pool keeps them: [pages, 64 · (E + 4)] uint8."""
    width = inputs.k.shape[1]
    pages = inputs.table.numel()
    keys = torch.zeros(pages * PAGE, width, dtype=torch.uint8, device=inputs.k.device)
    scales = torch.zeros(pages * PAGE, dtype=torch.float32, device=inputs.k.device)
    keys[inputs.slots.long()] = inputs.k.view(torch.uint8)
    scales[inputs.slots.long()] = inputs.scale
    return torch.cat((keys.view(pages, -1), scales.view(pages, -1).view(torch.uint8)), dim=1)


def _grid() -> tuple[Shape, ...]:
    return tuple(s for s in (*shapes.decode(), *shapes.verify()) if s.heads == s.dimensions.heads)


OPERATOR = replace(
    indexer_ragged.OPERATOR,
    name="indexer_paged",
    does="lightning-indexer logits of a decode or verify step",
    small=(*shapes.SMALL_DECODE, *shapes.SMALL_VERIFY),
    grid=_grid,
    study=None,
)
