"""Sparse attention of a decode step: one query for each of many sequences.

Inputs, formula and tolerance are those of `sparse_prefill`; only the shapes differ, and with them which kernel is best
(every row is read for one query alone). Source: sglang's dsa_backend.py `_forward_flashmla_kv`, `_forward_fa3`.
"""

from __future__ import annotations

from dataclasses import replace

from dsakernels import shape as shapes
from dsakernels.operators import sparse_prefill

OPERATOR = replace(
    sparse_prefill.OPERATOR,
    name="sparse_decode",
    does="sparse attention of a decode step, one query a sequence",
    small=shapes.SMALL_DECODE,
    grid=shapes.decode,
    study=None,
)
