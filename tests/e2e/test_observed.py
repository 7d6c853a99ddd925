"""The machine in what a load test tells, with GPUs of a compiled stand-in for the driver that the program finds by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dsabench.model.record import Measured
from dsabench.results.journal import read_journal
from nvml_driver import as_the_drivers_own, needs_compiler
from sglang_server import install_server
from unit.cli.bench_server import BenchServerThread

pytestmark = pytest.mark.slow

INFO = {"version": "0.5.23", "device": "cuda", "tp_size": 1, "reference": {"vocab_size": 1000}}
CONFIG = """
name: observed
runtime: {{kind: external, model: m, base_url: "{url}"}}
workloads:
  - {{name: slow, dataset: random-ids, input_len: 16, output_len: 60, num_prompts: 4, max_concurrency: 2, warmup_requests: 0}}
sweeps: []
objective: {{metric: output_throughput_tok_s, direction: maximize, constraints: [{{metric: gpu.power_w.mean, max: 700}}]}}
"""
BENCH = (
    "bench --model m --dataset-name random-ids --tokenize-prompt --vocab-size 100 --random-input-len 8 --random-output-len 60"
    " --random-range-ratio 1 --num-prompts 4 --max-concurrency 2"
)
HOT = "GPU 0 was throttled 100% of the time (software thermal)"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Of a machine with two GPUs, of which a server holds one."""
    folder = tmp_path / "driver"
    folder.mkdir()
    hidden = {"CUDA_VISIBLE_DEVICES", "USED_MIB"}
    return {k: v for k, v in os.environ.items() if k not in hidden} | as_the_drivers_own(folder)


def dsabench(words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "dsabench", *words], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@needs_compiler
def test_bench_tells_of_the_gpu_that_the_server_holds(tmp_path: Path, env: dict[str, str]) -> None:
    file = tmp_path / "out.jsonl"
    with BenchServerThread(gap_s=0.06, info=INFO) as server:
        done = dsabench([*BENCH.split(), "--base-url", server.url, "--output-file", str(file)], env)
    [machine_line] = [line for line in done.stdout.splitlines() if line.startswith("Machine: ")]
    assert machine_line.startswith("Machine: GPU 90% busy, GPU clock 1980 MHz, 400 W per GPU, 41 °C, ")
    assert f"warning: {HOT}" in done.stderr
    record = json.loads(file.read_text())
    machine = record["machine"]
    assert machine["gpu.energy_j"] == pytest.approx(400 * record["duration"], rel=0.02)
    assert machine["energy_per_output_token_j"] == pytest.approx(machine["gpu.energy_j"] / 240)
    assert machine["gpu.busy_share.min"] == pytest.approx(0.9)


@needs_compiler
def test_a_sweep_records_it_and_every_reader_finds_it(tmp_path: Path, env: dict[str, str]) -> None:
    results = tmp_path / "results"
    with BenchServerThread(gap_s=0.06, info=INFO) as server:
        config = tmp_path / "observed.yaml"
        config.write_text(CONFIG.format(url=server.url))
        dsabench(["sweep", str(config), "--results", str(results)], env)
    [line] = (results / "journal.jsonl").read_text().splitlines()
    record = json.loads(line)
    metrics = record["outcome"]["metrics"]
    assert metrics["gpu.energy_j"]["value"] == pytest.approx(400 * metrics["duration_s"]["value"], rel=0.02)
    assert metrics["gpu.power_w.mean"]["n"] == 1
    assert metrics["gpu.busy_share.mean"]["value"] == pytest.approx(0.9)
    assert {"host.cpu_busy_share", "host.steal_share", "energy_per_token_j"} <= metrics.keys()
    assert any(warning.startswith(HOT) for warning in record["outcome"]["warnings"])
    shown = dsabench(["results", "show", record["id"][:10], "--results", str(results)], env).stdout
    assert "gpu.sm_clock_mhz.mean" in shown
    assert HOT in " ".join(shown.split())
    sql = "SELECT value FROM metrics WHERE metric = 'gpu.temperature_c.max'"
    assert "41" in dsabench(["results", "query", sql, "--results", str(results)], env).stdout


COMPANY = """
import os

def note(pid, mode):
    with open(os.environ["NOTE_PIDS"], mode) as file:
        file.write(f"{pid}\\n")

note(os.getpid(), "w")
came = []

def pause_s(settings):
    if settings.get("chunked_prefill_size") == 4096 and not came:
        came.append(4242)  # another process comes while this one serves
        note(4242, "a")
    return 0.02
"""


@needs_compiler
def test_a_boot_beside_a_process_of_somebody_else_is_marked(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "script.py").write_text(COMPANY)
    study = yaml.safe_load((Path(__file__).parents[2] / "configs" / "h200-slice.yaml").read_text())
    launch_env = {
        "PYTHONPATH": str(install_server(tmp_path / "site")),
        "STAND_IN_SCRIPT": str(tmp_path / "script.py"),
        "STAND_IN_BOOT_S": "0",
        "NOTE_PIDS": str(tmp_path / "pids"),
    }
    study["runtime"]["launch"] = {"python": sys.executable, "env": launch_env}
    load = {"name": "w", "dataset": "random-ids", "input_len": 32, "output_len": 4, "num_prompts": 8}
    study |= {
        "workloads": [{**load, "max_concurrency": 4}],
        "first": [],
        "sweeps": [{"axes": {"chunked_prefill_size": [1024, 4096]}}],
        "objective": {"metric": "total_throughput_tok_s", "direction": "maximize"},
        "budget": {"confirm_boots": 0},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    words = ["sweep", str(tmp_path / "study.yaml"), "--results", str(tmp_path / "out")]
    dsabench(words, {**env, "PIDS": str(tmp_path / "pids"), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    records = read_journal(tmp_path / "out" / "journal.jsonl").records
    found = {
        record.trial.runtime.knobs["chunked_prefill_size"]: record.outcome
        for record in records
        if isinstance(record.outcome, Measured)
    }
    assert {chunk: one.metrics["gpu.foreign_processes"].value for chunk, one in found.items()} == {1024: 0, 4096: 1}
    (warning,) = (warning for warning in found[4096].warnings if "other processes computed" in warning)
    assert "(4242)" in warning
