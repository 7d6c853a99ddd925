"""Sparse attention of an MTP verify step: the last token of each sequence and its drafts, 2 or 4 queries together.

Inputs, formula and tolerance are those of `sparse_prefill`. sglang treats each draft as a query of its own with its own
selection (dsa_backend.py: "the 2nd dim is seq_len_q, need to be >1 when MTP"), so that a row selected by all four is
read four times.
"""

from __future__ import annotations

from dataclasses import replace

from dsakernels import shape as shapes
from dsakernels.operators import sparse_prefill

OPERATOR = replace(
    sparse_prefill.OPERATOR,
    name="mtp_verify",
    does="sparse attention of an MTP verify step, 2 or 4 queries a sequence",
    small=shapes.SMALL_VERIFY,
    grid=shapes.verify,
    study=None,
)
