"""The highest load that meets an SLO, on a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STUDY = """
name: capacity
runtime:
  kind: reference
  model: tiny
  base: {pp_max_micro_batch_size: 1, max_running_requests: 16, cpu_threads: 1}  # one request at a time: the others wait
workloads:
  - {name: chat, dataset: random-ids, input_len: 32, output_len: 64, num_prompts: 20, max_concurrency: 16,
     slo: {ttft_ms: TTFT}, capacity: {lowest: 1, attainment: 0.8, probes: 4}}
sweeps:
  - axes: {pp_max_micro_batch_size: [1]}
objective: {metric: capacity_concurrency, direction: maximize}
budget: {confirm_boots: 0}
"""


def record_of(tmp_path: Path, ttft_ms: float, study: str = STUDY) -> tuple[dict, str]:
    config = tmp_path / "capacity.yaml"
    config.write_text(study.replace("TTFT", f"{ttft_ms:g}"))
    command = [sys.executable, "-m", "dsabench", "sweep", str(config), "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (tmp_path / "journal.jsonl").read_text().splitlines()
    return json.loads(line)["outcome"], done.stderr


@pytest.mark.slow
def test_it_lies_between_what_met_the_slo_and_what_did_not(tmp_path: Path) -> None:
    slow, _ = record_of(tmp_path, 1e6)
    assert [one["load"] for one in slow["probes"]] == [16]
    assert slow["metrics"]["capacity_concurrency"]["value"] == 16
    assert any("the highest load of the config met the SLO too" in one for one in slow["warnings"])
    (tmp_path / "journal.jsonl").unlink()
    # A third of what the last of sixteen waits: far from what one alone and sixteen together take, on any machine.
    outcome, said = record_of(tmp_path, slow["metrics"]["ttft_ms.p90"]["value"] / 3)
    loads = {one["load"]: one["attainment"] for one in outcome["probes"]}
    assert list(loads)[:2] == [16, 1]
    assert len(loads) == 4
    assert loads[16] < 0.8 <= loads[1]
    capacity = outcome["metrics"]["capacity_concurrency"]
    assert capacity == {"value": max(load for load, met in loads.items() if met >= 0.8), "n": 4}
    assert outcome["metrics"]["slo_attainment"]["value"] == loads[capacity["value"]]
    assert "chat at 16: " in said


@pytest.mark.slow
def test_without_a_load_that_meets_it_there_is_no_capacity(tmp_path: Path) -> None:
    outcome, _ = record_of(tmp_path, 0.001)
    assert [one["load"] for one in outcome["probes"]] == [16, 1]
    assert "capacity_concurrency" not in outcome["metrics"]
    assert any("not even the lowest load of the config (1) met the SLO" in one for one in outcome["warnings"])


@pytest.mark.slow
def test_a_rate_that_cannot_meet_it_any_more_is_stopped(tmp_path: Path) -> None:
    """A hundred requests at once take many times their 150 ms; the server goes on with the next rate all the same."""
    old = "num_prompts: 20, max_concurrency: 16,\n     slo: {ttft_ms: TTFT}, capacity: {lowest: 1, attainment: 0.8, probes: 4}"
    new = "num_prompts: 100, request_rate: 1000,\n     slo: {e2e_ms: TTFT}, capacity: {lowest: 20, attainment: 0.8, probes: 2}"
    assert old in STUDY
    outcome, said = record_of(tmp_path, 150, STUDY.replace(old, new).replace("concurrency, dir", "req_s, dir"))
    first, second = outcome["probes"]
    assert first["load"] == 1000
    assert first["stopped"]
    assert first["attainment"] < 0.8
    assert (second["load"], second["stopped"]) == (20, False)
    assert outcome["metrics"]["completed"]["value"] == 100
    assert "chat at 1000: stopped, at most " in said
