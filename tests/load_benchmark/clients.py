"""The two clients as command lines, and what a run of one costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The extension module of the sglang 0.5.23 wheel loads by itself; `sglang.benchmark.rust_client` calls it in this way.
_RUST = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("sglang.srt.rust_extensions._bench", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
try:
    module.run_argv(["bench", *sys.argv[2:]])
except SystemExit as end:
    sys.exit(int(end.code or 0))
"""


@dataclass(frozen=True)
class Client:
    name: str
    argv: tuple[str, ...]
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Load:
    streams: int
    requests: int
    tokens: int


@dataclass(frozen=True)
class Cost:
    cpu_s: float
    wall_s: float
    rss_mb: float
    line: dict[str, Any]


def dsabench(python: str = sys.executable, workers: int = 1) -> Client:
    return Client("dsabench", (python, "-m", "dsabench", "bench"), ("--workers", str(workers)))


def rust(extension: Path, python: str = sys.executable) -> Client:
    return Client("rust", (python, "-c", _RUST, str(extension)), ("--worker-threads", "1"))


def measure(client: Client, base_url: str, load: Load, core: int | None) -> Cost:
    """Run once; CPU is the rusage of the whole process tree from start to exit."""
    with tempfile.TemporaryDirectory() as folder:
        line = Path(folder) / "line.jsonl"
        flags = [
            "--backend", "sglang", "--base-url", base_url, "--model", "m", "--dataset-name", "random-ids",
            "--tokenize-prompt", "--vocab-size", "1000", "--random-input-len", "32",
            "--random-output-len", str(load.tokens), "--random-range-ratio", "1.0",
            "--num-prompts", str(load.requests), "--max-concurrency", str(load.streams),
            "--warmup-requests", "0", "--disable-tqdm", "--output-file", str(line), *client.extra,
        ]  # fmt: skip
        cpu_s, wall_s, rss_mb = run([*client.argv, *flags], core)
        return Cost(cpu_s, wall_s, rss_mb, json.loads(line.read_text().splitlines()[-1]))


def bare_start(client: Client, core: int | None) -> float:
    """CPU seconds of the same program started to parse its flags and do nothing else: `--help`, output thrown away."""
    return run([*client.argv, "--help"], core)[0]


def run(argv: list[str], core: int | None) -> tuple[float, float, float]:
    """(CPU seconds of the tree, wall seconds, largest resident set of one process in MB)."""
    begun = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if core is not None:
        os.sched_setaffinity(process.pid, {core})
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv[:4]} ended with {process.returncode}: {said.decode(errors='replace')[-2000:]}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - begun, usage.ru_maxrss / 1024
