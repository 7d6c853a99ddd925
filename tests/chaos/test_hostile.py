"""Whatever a server sends: no hang, no flood of memory, no false number, no traceback, nothing that steers a terminal."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple, Self

import psutil
import pytest

from chaos.hostile_server import FLOODS, HEALTHY, VARIANTS, Variant, hostile_server
from dsabench.doctor.run import DoctorOptions, run_checks
from dsabench.errors import TrialFault
from dsabench.evals.ask import Failure, Target, ask, client_for
from dsabench.load.judge.summary import summarise
from dsabench.load.load_test import run_load_test
from dsabench.load.requests import EndpointName, LoadTarget
from dsabench.model.evals import EvalTask
from dsabench.model.workload import Workload

TIMEOUT_S = 2.0
TOKENS, REQUESTS = 8, 2
MIB = 1 << 20
SAMPLE = (
    *("lie-8000", "lie-1e18", "lie-falling", "lie-length-early", "lie-done-early", "odd-repeats", "flood-header"),
    *(
        "flood-line",
        "trickle-body",
        "reset-after-frames",
        "http-chunk-huge",
        "coding-deflate-bomb",
        "coding-lie",
        "text-escape",
    ),
    *("text-truncated-json", "control-flood", "control-no-http"),
)
"""One of each kind, for every run; all of them with `nox -s full`."""


def variants(*, control: bool = True) -> list[object]:
    return [
        name if name in SAMPLE else pytest.param(name, marks=pytest.mark.slow)
        for name, variant in VARIANTS.items()
        if control or not variant.control
    ]


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    wall_s: float
    peak_mib: float


def run(folder: Path, *words: str) -> Ended:
    """A command of its own process, with its memory."""
    began_s = time.perf_counter()
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen([sys.executable, "-m", "dsabench", *words], stdout=out, stderr=err, cwd=folder)
        peak_mib = 0.0
        while process.poll() is None:
            peak_mib = max(peak_mib, _peak_mib(process.pid))
            time.sleep(0.01)
    texts = ((folder / name).read_text(errors="replace") for name in ("out", "err"))
    return Ended(process.returncode, *texts, time.perf_counter() - began_s, peak_mib)


def _peak_mib(pid: int) -> float:
    """Of the program, since it was started; rusage would count what its parent had when it forked."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) / 1024 if found else 0.0


def bench(url: str, folder: Path, backend: str = "sglang") -> Ended:
    words = (
        f"bench --base-url {url} --model m --backend {backend} --num-prompts {REQUESTS} --max-concurrency {REQUESTS}"
    )
    words += f" --warmup-requests 0 --request-timeout-s {TIMEOUT_S} --ready-check-timeout-sec 2 --output-file o.jsonl"
    if backend == "sglang":
        words += " --dataset-name random-ids --tokenize-prompt --vocab-size 100"
    else:
        words += " --dataset-name random-ids --tokenizer bytes"
    words += f" --random-input-len 4 --random-output-len {TOKENS} --random-range-ratio 1"
    return run(folder, *words.split())


def check(ended: Ended, variant: Variant, folder: Path) -> None:
    assert "Traceback" not in ended.err
    assert not set(ended.out + ended.err) & {"\x1b", "\x07", "\x00"}
    assert ended.peak_mib < 300
    # a control call has 5 s, and there are several of them
    assert ended.wall_s < (
        25.0 if variant.control else TIMEOUT_S + 2.0 + 3.0
    )  # three seconds to start on a busy machine
    assert ended.code in {0, 3}, ended.err
    if ended.code == 0:
        assert variant.believable or variant.control
        record = json.loads((folder / "o.jsonl").read_text())
        assert record["total_output_tokens"] == REQUESTS * TOKENS
        assert record["completed"] == REQUESTS


@pytest.mark.parametrize("name", variants())
def test_bench_of_generate(name: str, tmp_path: Path) -> None:
    with hostile_server(VARIANTS[name]) as url:
        check(bench(url, tmp_path), VARIANTS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sglang-oai", "sglang-oai-chat"])
@pytest.mark.parametrize("name", [name for name in VARIANTS if name.startswith(("lie-", "odd-", "text-", "cut-"))])
def test_bench_of_openai(name: str, backend: str, tmp_path: Path) -> None:
    if name == "lie-none":
        pytest.skip("an OpenAI server need not count: its events are taken for tokens, with a warning")
    with hostile_server(VARIANTS[name]) as url:
        check(bench(url, tmp_path, backend), VARIANTS[name], tmp_path)


@pytest.mark.parametrize("backend", ["sglang", "sglang-oai", "sglang-oai-chat"])
def test_a_healthy_server_passes(backend: str, tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    with hostile_server(HEALTHY) as url:
        ended = bench(url, tmp_path, backend)
    assert ended.code == 0, ended.err
    check(ended, HEALTHY, tmp_path)


class Memory:
    """The most that this process grew by while it was looked at."""

    def __enter__(self) -> Self:
        self._process = psutil.Process()
        self._before = self._process.memory_info().rss
        self.grown_mib = 0.0
        self._task = asyncio.get_running_loop().create_task(self._look())
        return self

    def __exit__(self, *_: object) -> None:
        self._task.cancel()

    async def _look(self) -> None:
        while True:
            self.grown_mib = max(self.grown_mib, (self._process.memory_info().rss - self._before) / MIB)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", variants(control=False))
async def test_a_question_of_an_eval(name: str) -> None:
    variant = VARIANTS[name]
    for endpoint in ("completions", "chat"):
        task = EvalTask.model_construct(
            endpoint=endpoint, thinking=None, stop=(), temperature=0.0, top_p=1.0, max_tokens=TOKENS
        )
        began_s = time.perf_counter()
        with hostile_server(variant) as url, Memory() as memory:
            reply = await ask(client_for(Target(url, "m"), task, TIMEOUT_S), task, Target(url, "m"), "x")
        assert time.perf_counter() - began_s < TIMEOUT_S + 2.0
        assert memory.grown_mib < 200
        if isinstance(reply, Failure):
            assert reply.message.isprintable()
        else:
            assert variant.believable or reply.tokens("completion_tokens") is None, reply


@pytest.mark.parametrize("endpoint", ["generate", "completions", "chat"])
@pytest.mark.parametrize("name", variants(control=False))
async def test_a_trial_of_a_sweep(name: str, endpoint: EndpointName) -> None:
    variant = VARIANTS[name]
    if name == "lie-none" and endpoint != "generate":
        pytest.skip("an OpenAI server need not count: its events are taken for tokens, with a warning")
    point = Workload(
        name="w", dataset="random-ids" if endpoint != "chat" else "generated-shared-prefix", input_len=4, output_len=TOKENS,
        num_prompts=REQUESTS, max_concurrency=REQUESTS, request_timeout_s=TIMEOUT_S, warmup_requests=0,
        shared_prefix=None if endpoint != "chat" else {
            "groups": 1, "prompts_per_group": REQUESTS, "system_prompt_len": 4, "question_len": 4, "output_len": TOKENS,
        },
    )  # fmt: skip
    began_s = time.perf_counter()
    with hostile_server(variant) as url, Memory() as memory:
        target = LoadTarget(url, "m", 100, "bytes", endpoint)
        measured, fault = None, None
        try:
            measured = summarise(await run_load_test(target, point, on_progress=lambda *_: None), point)
        except TrialFault as raised:
            fault = raised
    if fault is not None:
        assert fault.message.isprintable()
        assert fault.kind in {"bad_response", "request_errors", "request_timeout", "unreachable"}
    if measured is not None:
        assert variant.believable
        assert measured.metrics["output_tokens"].value == REQUESTS * TOKENS
    assert time.perf_counter() - began_s < TIMEOUT_S + 2.0
    assert memory.grown_mib < 200


@pytest.mark.parametrize("name", variants())
async def test_the_doctor(name: str) -> None:
    began_s = time.perf_counter()
    with hostile_server(VARIANTS[name]) as url, Memory() as memory:
        options = DoctorOptions(base_url=url, timeout_s=TIMEOUT_S, question_timeout_s=TIMEOUT_S)
        found = await run_checks(options)
    assert all(finding.line.isprintable() for finding in found)
    assert time.perf_counter() - began_s < 12 * TIMEOUT_S
    assert memory.grown_mib < 200


def test_there_are_over_a_hundred() -> None:
    assert len(VARIANTS) > 100
    assert len(FLOODS) > 20
