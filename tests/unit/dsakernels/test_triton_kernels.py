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
from dsakernels.shape import OperatorShape
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
        errors("sparse_decode", OperatorShape("small", 8, 3, 1, kv), dtype, lambda i: sparse_attention.attend(
            i.q, i.cache, i.indices, latent=i.layout.latent, scale=i.scale, parts=parts))
errors("indexer_paged", OperatorShape("small", 8, 2, 4, 150), "bf16", lambda i: indexer.logits(
    i.q, i.k, i.scale, i.weights, torch.arange(300, dtype=torch.int32), batch=2))
"""


def test_they_equal_the_reference():
    pytest.importorskip("triton")
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr


COMPILED = """
from triton.backends.compiler import GPUTarget
import triton
from dsakernels.triton_kernels import indexer, sparse_attention
from dsakernels.triton_kernels.blocking import blocking_for

def compiled(kernel, types, constants, **options):
    names = kernel.arg_names
    source = triton.compiler.ASTSource(
        fn=kernel,
        signature={name: "constexpr" if name in constants else types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in types if types[name] != "fp32"},
    )
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert made.metadata.shared <= 227 * 1024, (constants, made.metadata.shared)
    return made.asm["ptx"]

for packed in (False, True):
    for heads in (8, 128):
        cut = blocking_for(heads)
        row = "*fp8e4nv" if packed else "*bf16"
        types = {"q": "*bf16", "rows": row, "scales": "*fp32" if packed else "*bf16", "rope": "*bf16", "indices": "*i32",
                 "out": "*bf16", "stats": "*fp32", "k": "i32", "scale": "fp32"}
        strides = {"ROW": 656, "SCALES": 164, "ROPE": 328} if packed else {"ROW": 576, "SCALES": 576, "ROPE": 576}
        constants = {"H": heads, "C": 512, "R": 64, "PARTS": 1, "HEADS": cut.heads, "BLOCK": cut.rows, "PACKED": packed}
        text = compiled(sparse_attention._attend, types, {**constants, **strides},
                        num_warps=cut.warps, num_stages=cut.stages)
        assert ("wgmma" in text) == (heads == 128)
compiled(sparse_attention._join, {"partial": "*fp32", "stats": "*fp32", "out": "*bf16"}, {"H": 128, "C": 512, "PARTS": 16})
for kind in ("*bf16", "*fp8e4nv"):
    types = {"q": kind, "k": kind, "scale": "*fp32", "weights": "*fp32", "slots": "*i32", "out": "*fp32", "new": "i32",
             "kept": "i32"}
    compiled(indexer._logits, types, {"I": 64, "E": 128, "BLOCK": 64, "QUERIES": 4})
"""


def test_they_compile_for_hopper_and_fit_its_shared_memory():
    pytest.importorskip("triton.backends.nvidia")
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
