"""The reference runtime on GPUs: Triton's kernels against plain PyTorch, and several GPUs against one.

    python -m pytest tests/gpu                              # on a machine with GPUs
    DSABENCH_TEST_DEVICE=cpu python -m pytest tests/gpu     # the same code without: PyTorch's paths, gloo

Without a CUDA device the tests are skipped, and with one those of two. They need no plugin of pytest; where those of the
project are missing, `-W ignore::pytest.PytestConfigWarning` lets it pass over their settings.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from dsabench.model.runtime import RuntimeSpec
from dsabench.reference.runtime import ReferenceRuntime
from dsabench.runtimes.command import Launch
from dsabench.runtimes.protocol import Place
from gpu.engine_texts import LENGTHS, NEW, prompt
from unit.reference.server.serving import ROOT, serving

DEVICE = os.environ.get("DSABENCH_TEST_DEVICE", "cuda")
BACKEND = "triton" if DEVICE == "cuda" else "flashmla_sparse"
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = pytest.mark.skipif(DEVICE == "cuda" and GPUS == 0, reason="needs a CUDA device")
two_gpus = pytest.mark.skipif(DEVICE == "cuda" and GPUS < 2, reason="needs two CUDA devices")

PROGRAM = Path(__file__).with_name("engine_texts.py")
KERNELS = ("--dsa-prefill-backend", BACKEND, "--dsa-decode-backend", BACKEND)
FLOAT = ("--dtype", "float32")
FP8 = ("--kv-cache-dtype", "fp8_e4m3")
EAGLE = ("--speculative-algorithm", "EAGLE")
HOT = ("--enable-hisparse", "--hisparse-config", '{"device_buffer_size": 256}')
IEEE = {"TRITON_F32_DEFAULT": "ieee"}
"""A product of float32 in float32, not in TF32."""
ROUNDING = {"float32": 2e-4, "bfloat16": 0.06}
"""Gaps of two logits (some 3 in size) below which another order of addition may turn them round."""
READY_S = 100.0


@dataclass(frozen=True)
class Served:
    """What one engine did."""

    device: str
    texts: list[list[int]]
    gaps: list[list[float]]
    tokens: dict[str, int]
    accept_length: float | None
    hot_buffer: dict[str, int]
    experts: int


def engines(*flags: tuple[str, ...]) -> list[Served]:
    """Run engines one after the other in a process."""
    paths = [str(ROOT / "tests"), str(ROOT / "harness"), str(ROOT / "kernels"), *sys.path]
    env = {**os.environ, **IEEE, "PYTHONPATH": os.pathsep.join(paths)}
    argv = [sys.executable, str(PROGRAM), json.dumps([["--device", DEVICE, *each] for each in flags])]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return [Served(**json.loads(line)) for line in done.stdout.splitlines()]


def assert_same_but_for_rounding(found: Served, known: Served, limit: float) -> None:
    """Texts part only where the two best tokens are nearer than `limit`; what follows a parting is another text."""
    for length, text, other, gaps in zip(LENGTHS, found.texts, known.texts, known.gaps, strict=True):
        assert len(text) == len(other) == len(gaps) == NEW
        at = next((place for place in range(NEW) if text[place] != other[place]), None)
        assert at is None or gaps[at] < limit, f"prompt of {length}: parts at {at}, where the gap is {gaps[at]}"
    near = sum(gap < limit for gaps in known.gaps for gap in gaps)
    assert near < len(LENGTHS) * NEW / 4, "else the rule above allows everything"


def assert_ran_along(served: Served, backend: str) -> None:
    """All of decode, and prefill as far as it selects."""
    assert served.tokens[f"decode.{backend}"] == len(LENGTHS) * (NEW - 1)
    assert served.tokens[f"prefill.{backend}"] > max(LENGTHS)
    assert {name.partition(".")[2] for name in served.tokens} <= {backend, "dense_mha"}


def test_float32_on_the_gpu_is_float32_on_the_cpu() -> None:
    triton, plain, cpu = engines((*FLOAT, *KERNELS), FLOAT, (*FLOAT, "--device", "cpu"))
    assert (triton.device, plain.device, cpu.device) == (DEVICE, DEVICE, "cpu")
    assert_ran_along(triton, BACKEND)
    assert_ran_along(plain, "flashmla_sparse")
    assert_same_but_for_rounding(triton, plain, ROUNDING["float32"])
    assert_same_but_for_rounding(plain, cpu, ROUNDING["float32"])


def test_bfloat16_parts_only_where_rounding_decides() -> None:
    triton, plain = engines(("--dtype", "bfloat16", *KERNELS), ("--dtype", "bfloat16"))
    assert_ran_along(triton, BACKEND)
    assert_same_but_for_rounding(triton, plain, ROUNDING["bfloat16"])


def test_an_fp8_cache_is_read_as_flashmla_kv_reads_it() -> None:
    triton, plain = engines((*FLOAT, *FP8, *KERNELS), (*FLOAT, *FP8))
    assert_ran_along(triton, BACKEND)
    assert_ran_along(plain, "flashmla_kv")
    assert_same_but_for_rounding(triton, plain, ROUNDING["float32"])


def test_speculation_and_hisparse_change_no_text() -> None:
    plain, *others = engines(*((*FLOAT, *more) for more in ((), EAGLE + KERNELS, HOT + KERNELS, EAGLE + HOT + KERNELS)))
    for served in others:
        assert_same_but_for_rounding(served, plain, ROUNDING["float32"])
        assert served.tokens[f"decode.{BACKEND}"]
    eagle, hot, both = others
    assert [one.accept_length is not None for one in others] == [True, False, True]
    assert (eagle.accept_length or 0) > 1.5
    assert eagle.hot_buffer == {}
    for served in (hot, both):
        assert served.hot_buffer["hits"] > 0
        assert served.hot_buffer["misses"] > 0


def test_experts() -> None:
    model = (*FLOAT, "--model", "small-moe")
    triton, plain = engines((*model, *KERNELS), model)
    assert triton.experts == 16
    assert_ran_along(triton, BACKEND)
    assert_same_but_for_rounding(triton, plain, ROUNDING["float32"])


@dataclass(frozen=True)
class Answers:
    """Over HTTP: texts of prompts one at a time, and what the server says after 8 more requests at once."""

    texts: list[list[int]]
    info: dict

    @property
    def reference(self) -> dict:
        return self.info["reference"]


def ask(*flags: str, model: str = "small") -> Answers:
    pool = ("--max-total-tokens", "32768")
    common = ("--device", DEVICE, *FLOAT, *pool)
    with serving(*common, *flags, model=model, ready_s=READY_S, **IEEE) as server:
        texts = [server.generate(prompt(length), new=NEW)["output_ids"] for length in LENGTHS]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda seed: server.generate(prompt(1000 + seed)[:192], new=96), range(8)))
        assert server.info()["device"] == DEVICE
        return Answers(texts, server.info())


@pytest.fixture(scope="module")
def alone() -> Answers:
    """One GPU, plain PyTorch."""
    return ask()


@pytest.fixture(scope="module")
def experts_alone() -> Answers:
    """The same with experts."""
    return ask(model="small-moe")


def test_a_server_with_tritons_kernels_answers_as_one_without(alone: Answers) -> None:
    triton = ask(*KERNELS)
    assert triton.texts == alone.texts
    for answers, path in ((triton, BACKEND), (alone, "flashmla_sparse")):
        tokens = answers.reference["counters"]["tokens"]
        assert tokens[f"decode.{path}"] == len(LENGTHS) * (NEW - 1) + 8 * 95
        assert tokens[f"prefill.{path}"] > max(LENGTHS)
    if DEVICE == "cuda":
        assert alone.reference["device_name"] == torch.cuda.get_device_name(0).replace(" ", "_")


def test_a_boot_of_a_sweep_has_the_device_and_the_kernels_it_asks_for(tmp_path: Path) -> None:
    spec = RuntimeSpec(kind="reference", model="small", knobs={"device": DEVICE, "decode_backend": BACKEND})
    runtime = ReferenceRuntime(Launch(env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}))

    async def booted() -> Any:
        async with runtime.serve(spec, Place(folder=tmp_path, ready_timeout_s=READY_S)) as server:
            return server.resolved

    resolved = asyncio.run(booted())
    assert (resolved["device"], resolved["dsa_decode_backend"]) == (DEVICE, BACKEND)


@two_gpus
@pytest.mark.parametrize(
    ("flags", "heads", "groups"),
    [
        (("--tp-size", "2"), 0.5, 1),
        (("--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"), 1, 2),
        (("--dp-size", "2"), 1, 2),
    ],
    ids=["tp", "dp-attention", "replicas"],
)
def test_two_gpus_answer_as_one(alone: Answers, flags: tuple[str, ...], heads: float, groups: int) -> None:
    two = ask(*flags)
    assert two.texts == alone.texts
    assert two.reference["heads_per_rank"] == alone.reference["heads_per_rank"] * heads
    if groups == 2:
        shares = [one["prompt_tokens"] for one in two.reference["counters_of_groups"]]
        assert len(shares) == 2
        assert all(shares), "both had requests"


@two_gpus
def test_experts_on_two_gpus_answer_as_on_one(experts_alone: Answers) -> None:
    two = ask("--tp-size", "2", "--ep-size", "2", model="small-moe")
    assert two.texts == experts_alone.texts
    ranks = [{int(expert) for expert in one} for one in two.reference["expert_tokens_of_ranks"]]
    assert len(ranks) == 2
    assert all(ranks)
    assert max(ranks[0]) < min(ranks[1]), "each has whole experts of its own"
