"""Every operator by its name, one module each."""

from __future__ import annotations

from dsakernels.operator import Operator
from dsakernels.operators import (
    absorb,
    dense_prefill,
    hisparse_swap_in,
    indexer_paged,
    indexer_ragged,
    kv_dequantise,
    kv_expand,
    kv_quantise,
    mtp_verify,
    sparse_decode,
    sparse_prefill,
    topk_select,
)

OPERATORS: dict[str, Operator] = {
    "indexer_ragged": indexer_ragged.OPERATOR,
    "indexer_paged": indexer_paged.OPERATOR,
    "topk_select": topk_select.OPERATOR,
    "sparse_prefill": sparse_prefill.OPERATOR,
    "sparse_decode": sparse_decode.OPERATOR,
    "mtp_verify": mtp_verify.OPERATOR,
    "dense_prefill": dense_prefill.OPERATOR,
    "absorb": absorb.OPERATOR,
    "kv_expand": kv_expand.OPERATOR,
    "kv_quantise": kv_quantise.OPERATOR,
    "kv_dequantise": kv_dequantise.OPERATOR,
    "hisparse_swap_in": hisparse_swap_in.OPERATOR,
}
