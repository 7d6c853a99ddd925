"""The backend `triton`: it says what plain PyTorch says, under Triton's interpreter, in float32."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from dsabench.errors import InputError
from dsabench.reference.server.arguments import parse
from dsabench.reference.server.resolve_settings import resolve

TRITON = ("--dsa-prefill-backend", "triton", "--dsa-decode-backend", "triton")
HOT = ("--disable-radix-cache", "--enable-hisparse", "--hisparse-config", '{"device_buffer_size": 128}')
PROGRAM = """
import os, sys
from dsabench.reference.engine.engine import Engine
from dsabench.reference.server.arguments import parse
from dsabench.reference.server.resolve_settings import resolve
from unit.reference.engines import greedy, prompt

def served(*flags):
    words = ["--model", "small", "--dtype", "float32", "--max-total-tokens", "1024", "--cpu-threads", "1", *flags]
    subject = Engine(resolve(parse(words), os.environ))
    return greedy(subject, prompt(131), prompt(3, seed=1), new=3), subject.counters.tokens

flags = ("--chunked-prefill-size", "128", *sys.argv[1:])
plain, _ = served(*flags)
triton, counts = served(*flags, *%r)
for (tokens, logits), (known_tokens, known) in zip(triton, plain, strict=True):
    assert tokens == known_tokens
    assert float((logits - known).abs().max()) < 1e-4 < float(known.abs().max())
assert counts["prefill.triton"] and counts["decode.triton"] == 4, counts
"""


@pytest.mark.parametrize("more", [(), ("--kv-cache-dtype", "fp8_e4m3"), HOT], ids=["bfloat16", "fp8", "hisparse"])
def test_it_says_what_plain_pytorch_says(more):
    """A chunk of dense MHA first: the second one, and each step behind it, have to select."""
    pytest.importorskip("triton")
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(["tests", *sys.path])}
    argv = [sys.executable, "-c", PROGRAM % (TRITON,), *more]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize(
    ("model", "env", "complaint"),
    [
        ("small", {}, "triton needs --device cuda"),
        ("small", {"TRITON_INTERPRET": "0"}, "triton needs --device cuda"),
        (
            "tiny",
            {"TRITON_INTERPRET": "1"},
            "the latent of tiny, 32, is too narrow (allowed: small, small-moe, trained)",
        ),
    ],
)
def test_where_it_cannot_run_it_is_refused_in_one_line(model, env, complaint, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    for flags in (TRITON[:2], TRITON[2:]):
        with pytest.raises(InputError) as caught:
            resolve(parse(["--model", model, *flags]), env)
        assert complaint in str(caught.value)
        assert "\n" not in str(caught.value)


def test_without_the_package_it_is_refused():
    if importlib.util.find_spec("triton"):
        pytest.skip("Triton is installed")
    with pytest.raises(InputError, match="the package triton is not installed"):
        resolve(parse(["--model", "small", *TRITON]), {"TRITON_INTERPRET": "1"})
