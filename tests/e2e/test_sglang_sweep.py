"""`dsabench sweep configs/h200-slice.yaml` from end to end, against a server that has all of sglang but the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dsabench.results.journal import read_journal
from sglang_server import install_server

ROOT = Path(__file__).parents[2]


def dsabench(home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_CACHE_HOME": str(home / "cache"), "PYTHONPATH": f"{ROOT / 'harness'}:{ROOT / 'kernels'}"}
    command = [sys.executable, "-m", "dsabench", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The shipped study with an interpreter of its own, and a load that fits a test."""
    study = yaml.safe_load((ROOT / "configs" / "h200-slice.yaml").read_text())
    study["runtime"]["launch"] = {
        "python": sys.executable,
        "env": {"PYTHONPATH": str(install_server(tmp_path / "site"))},
    }
    for workload in study["workloads"]:
        workload |= {"input_len": 32, "output_len": 4, "num_prompts": 12, "max_concurrency": 2}
    study["first"] = study["first"][:3]
    study["budget"] = {"max_trials": 6, "max_boots": 7, "confirm_boots": 2}
    study["price_per_gpu_hour"] = 3.6
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(study))
    return file


@pytest.mark.slow
def test_a_study_of_a_slice(tmp_path: Path, config: Path) -> None:
    plan = json.loads(dsabench(tmp_path, "sweep", config, "--dry-run", "--json").stdout)
    assert [bool(setting["refused"]) for setting in plan["settings"]][:4] == [False, True, False, False]
    assert plan["gpu_hours"] > 0

    capped = dsabench(tmp_path, "sweep", config, "--results", tmp_path / "out", "--gpu-hours", "0.01", "--json")
    said = json.loads(capped.stdout)
    assert said["trials"] == 0
    assert "GPU-hours, and 0.01 of 0.01 are left (gpu_hours)" in said["stopped"], said["stopped"]

    done = dsabench(tmp_path, "sweep", config, "--results", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["trials"], result["failed"]) == (16, 4)
    assert {verdict["n_candidate"] for verdict in result["verdicts"]} == {2}

    records = read_journal(tmp_path / "out" / "journal.jsonl").records
    faults = {(r.outcome.fault, r.outcome.stage) for r in records if r.outcome.kind == "failed"}
    assert faults == {("illegal_config", "plan"), ("kv_pool_out_of_memory", "boot")}
    assert {r.outcome.message[:4] for r in records if r.outcome.kind == "failed"} == {"SL11", "Runt"}
    measured = [r for r in records if r.outcome.kind == "measured"]
    assert {r.labels for r in measured} == {("random weights",), ("random weights", "simulated")}
    assert all(r.outcome.metrics["rehearsal.passes"].value >= 2 for r in measured)
    metrics = measured[0].outcome.metrics
    gpu_s = 1 / metrics["output_throughput_tok_s"].value
    assert metrics["gpu_s_per_output_token"].value == pytest.approx(gpu_s), "a slice of one GPU"
    assert metrics["cost_per_million_output_tokens_usd"].value == pytest.approx(1e6 * gpu_s * 3.6 / 3600)
    assert all((tmp_path / "out" / (r.outcome.samples or "")).is_file() for r in measured)
    assert measured[0].environment.runtime.version == "0.5.16"
    assert measured[0].resolved["dsabench"]["log"]["kv_tokens"] == 400000  # type: ignore[call-overload, index]


SPEED = """
def pause_s(settings):
    steps = settings.get("speculative_num_steps") or 0
    return 0.01 * (1 + steps / 4) / float(os.environ.get("SGLANG_SIMULATE_ACC_LEN", 1))
"""


@pytest.mark.slow
def test_draft_steps_by_batch_size(tmp_path: Path) -> None:
    """A server whose drafts cost a quarter of a step each, at every batch size."""
    study = yaml.safe_load((ROOT / "configs" / "h200-mtp.yaml").read_text())
    (tmp_path / "speed.py").write_text(f"import os\n{SPEED}")
    site = str(install_server(tmp_path / "site"))
    study["runtime"]["version"] = "0.5.16"
    study["runtime"]["launch"] = {
        "python": sys.executable,
        "env": {"PYTHONPATH": site, "STAND_IN_SCRIPT": str(tmp_path / "speed.py")},
    }
    study["runtime"]["base"] |= {"load_format": "dummy", "tokenizer": False}
    study["workloads"] = [
        load | {"input_len": 16, "output_len": 24, "num_prompts": 8} for load in study["workloads"][:2]
    ]
    study["budget"] = {"max_trials": 8, "confirm_boots": 3}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    words = ["--results", tmp_path / "out", "--accept-rate", "0.95", "--json"]
    done = dsabench(tmp_path, "tune", "mtp", tmp_path / "study.yaml", *words)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    costs = {(one["batch"], one["steps"]): one["cost"] for one in said["costs"]}
    for batch in (1, 8):
        assert [costs[batch, steps] for steps in (1, 2, 3)] == pytest.approx([1.25, 1.5, 1.75], abs=0.25)
    assert [slot["best"] for slot in said["schedule"]] == [3, 3]
    table = json.loads(Path(said["table"]).read_text())
    assert (table["kind"], table["evidence"]["label"]) == ("mtp", "simulated")
    first = next(
        r for r in read_journal(tmp_path / "out" / "journal.jsonl").records if "EAGLE" in r.trial.runtime.knobs.values()
    )
    assert first.trial.runtime.knobs["speculative_num_steps"] == 3  # what the accept rate promises comes first


def test_a_plan_needs_no_sglang(tmp_path: Path) -> None:
    """An interpreter without it: the version that the config names is looked up in the table."""
    study = yaml.safe_load((ROOT / "configs" / "h20-2node.yaml").read_text())
    study["runtime"]["launch"] = {"python": sys.executable}
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(study))
    done = dsabench(tmp_path, "sweep", file, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "planned for sglang 0.5.23, which is not installed here" in done.stderr
    assert "GPU-hours" in done.stdout


@pytest.mark.slow
def test_a_load_is_rehearsed_once_for_all_its_rates(tmp_path: Path, config: Path) -> None:
    study = yaml.safe_load(config.read_text())
    load = {"name": "rate", "dataset": "random-ids", "input_len": 32, "output_len": 4, "num_prompts": 12, "seed": 1}
    search = {"lowest": 5, "start": 40, "probes": 3}
    study["workloads"] = [load | {"request_rate": 200, "slo": {"ttft_ms": 1e6}, "capacity": search}]
    study |= {"objective": {"metric": "capacity_req_s", "direction": "maximize"}, "first": []}
    study["budget"] = {"max_trials": 1, "confirm_boots": 0}
    config.write_text(yaml.safe_dump(study))
    done = dsabench(tmp_path, "sweep", config, "--results", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    (record,) = read_journal(tmp_path / "out" / "journal.jsonl").records
    assert record.outcome.kind == "measured"
    assert record.outcome.probes is not None
    assert [one.load for one in record.outcome.probes] == [40, 60, 90]
    assert record.outcome.metrics["capacity_req_s"].value == 90
    (asked,) = (tmp_path / "out" / "boots").rglob("asked.txt")
    sent = asked.read_text().splitlines().count("/generate")
    assert sent == 12 * (record.outcome.metrics["rehearsal.passes"].value + 3)
