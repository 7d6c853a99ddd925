from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsabench.microbench.check import check, poison
from dsakernels.candidates import CANDIDATES
from dsakernels.operators import OPERATORS
from dsakernels.shape import Shape

DECODE = OPERATORS["sparse_decode"]
SHAPE = Shape("small", 8, 8, 1, 256)
RIGHT = next(c for c in CANDIDATES if c.operator == "sparse_decode" and c.name == "torch_flashmla_sparse")


def verdict(spoil):
    def bind(inputs):
        call = RIGHT.bind(inputs)
        return lambda: spoil(call())

    return check(DECODE, replace(RIGHT, bind=bind), SHAPE, "bf16", "cpu", seed=0)


def test_a_right_candidate_is_right_on_256_rows():
    found = verdict(lambda out: out)
    assert found.is_right
    assert found.rows >= 256


def test_one_wrong_row_of_eight_is_found():
    def spoil(out):
        out[3] *= 1.1
        return out

    found = verdict(spoil)
    assert not found.is_right
    assert found.rel_err == pytest.approx(0.1, abs=0.02)


def test_rows_that_a_second_call_leaves_unwritten_are_found():
    kept = {}

    def stale(out):
        return kept.setdefault(out.shape, out)  # the same memory each time, written only once

    found = verdict(stale)
    assert not found.is_right
    assert found.rel_err is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.uint8, torch.int32])
def test_poison_changes_every_dtype(dtype):
    tensor = torch.zeros(4, dtype=torch.float32).to(dtype)
    poison(tensor)
    values = tensor.double()
    assert bool((values.isnan() | (values == 255) | (values == -7)).all())
