"""Adapters hand foreign kernels the right numbers in the right places; the stand-ins say what they may show."""

from __future__ import annotations

import pytest
import torch

from dsakernels.candidates import CANDIDATES
from dsakernels.operator import relative_error
from dsakernels.operators import OPERATORS
from dsakernels.shape import parse
from unit.dsakernels import foreign_kernels

FOREIGN = [
    (candidate, dtype)
    for candidate in CANDIDATES
    if candidate.package is not None and candidate.name not in ("triton", "trtllm", "aiter")
    for dtype in candidate.dtypes
]
SHAPES = {
    "prefill": ("v3.2-h16-b1-q4-kv100", "v3.2-h128-b1-q3-kv2115", "v3.2-h8-b2-q5-kv5"),
    "decode": ("v3.2-h16-b3-q1-kv100", "glm5-h64-b1-q1-kv2116", "v3.2-h8-b2-q1-kv1"),
    "verify": ("v3.2-h16-b2-q4-kv100", "v3.2-h8-b1-q2-kv2116"),
    "swap": ("small-h8-b3-q1-kv256", "v3.2-h16-b2-q1-kv6145", "glm5-h64-b1-q1-kv8200"),
}
PHASE = {
    "hisparse_swap_in": "swap",
    "dense_prefill": "verify",
    "sparse_decode": "decode",
    "indexer_paged": "verify",
    "mtp_verify": "verify",
}


@pytest.mark.parametrize(("candidate", "dtype"), FOREIGN, ids=[f"{c.operator}-{c.name}-{d}" for c, d in FOREIGN])
def test_an_adapter_is_right_where_its_kernel_is(candidate, dtype, monkeypatch):
    foreign_kernels.install(monkeypatch)
    operator = OPERATORS[candidate.operator]
    phases = (
        ("prefill", "decode", "verify") if operator.name == "topk_select" else (PHASE.get(operator.name, "prefill"),)
    )
    shapes = [shape for phase in phases for shape in map(parse, SHAPES[phase]) if candidate.limit(shape) is None]
    assert shapes
    for shape in shapes:
        inputs = operator.make(shape, dtype, torch.Generator().manual_seed(1))
        rows = torch.arange(operator.rows(shape))[:48]
        found = operator.pick(inputs, candidate.bind(inputs)(), rows)
        given = inputs if candidate.rounds is None else candidate.rounds(inputs)
        assert relative_error(found, operator.expected(given, rows)) <= candidate.tolerance_of(operator, dtype), (
            shape.id
        )
