"""Every operator by its name."""

from __future__ import annotations

from dsakernels.operator import Operator
from dsakernels.operators.absorb import ABSORB
from dsakernels.operators.dense_prefill import DENSE_PREFILL
from dsakernels.operators.hisparse_swap_in import HISPARSE_SWAP_IN
from dsakernels.operators.indexer import INDEXER_PAGED, INDEXER_RAGGED
from dsakernels.operators.kv_expand import KV_EXPAND
from dsakernels.operators.kv_pack import KV_DEQUANTISE, KV_QUANTISE
from dsakernels.operators.sparse_attention import MTP_VERIFY, SPARSE_DECODE, SPARSE_PREFILL
from dsakernels.operators.topk_select import TOPK_SELECT

OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        *(INDEXER_RAGGED, INDEXER_PAGED, TOPK_SELECT),
        *(SPARSE_PREFILL, SPARSE_DECODE, MTP_VERIFY, DENSE_PREFILL),
        *(ABSORB, KV_EXPAND, KV_QUANTISE, KV_DEQUANTISE, HISPARSE_SWAP_IN),
    )
}
