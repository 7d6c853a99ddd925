"""Our Triton kernels under Triton's interpreter, in float32: the logic, not the speed and not the compiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
from dataclasses import replace
import torch
from dsakernels.operator import relative_error
from dsakernels.operators import OPERATORS
from dsakernels.shape import Shape
from dsakernels.triton_kernels import indexer, sparse_attention

def errors(name, shape, dtype, run):
    operator = OPERATORS[name]
    inputs = operator.make(shape, dtype, torch.Generator().manual_seed(0))
    plain = {"q": inputs.q.float()}
    if dtype == "bf16":
        plain |= {"cache": inputs.cache.float()} if hasattr(inputs, "cache") else {"k": inputs.k.float()}
    inputs = replace(inputs, **plain)
    rows = torch.arange(operator.rows(shape))
    found = relative_error(operator.pick(inputs, run(inputs), rows), operator.expected(inputs, rows))
    assert found < 1e-5, (name, shape.id, dtype, found)

for kv, parts in ((40, 1), (300, 1), (300, 2)):
    for dtype in ("bf16", "fp8"):
        errors("sparse_decode", Shape("small", 8, 3, 1, kv), dtype, lambda i: sparse_attention.attend(
            i.q, i.cache, i.indices, latent=i.layout.latent, scale=i.scale, parts=parts))
errors("indexer_paged", Shape("small", 8, 2, 4, 150), "bf16", lambda i: indexer.logits(
    i.q, i.k, i.scale, i.weights, torch.arange(300, dtype=torch.int32), batch=2))
"""


def test_they_equal_the_reference():
    pytest.importorskip("triton")
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
