"""What limited the server stands in the record of each load, on real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STUDY = """
name: limited
runtime:
  kind: reference
  model: tiny
  base: {pp_max_micro_batch_size: 1, max_running_requests: 16, dp_size: DP, cpu_threads: 1}
workloads:
  - {name: crowd, dataset: random-ids, input_len: 32, output_len: 256, num_prompts: 16, max_concurrency: 8}
sweeps:
  - axes: {pp_max_micro_batch_size: [1, 16]}
proposer: {kind: grid}
objective: {metric: output_throughput_tok_s, direction: maximize}
budget: {confirm_boots: 2}
"""


@pytest.mark.slow
@pytest.mark.parametrize("dp_size", [1, 2])
def test_a_small_batch_is_named_and_a_large_one_is_not(tmp_path: Path, dp_size: int) -> None:
    config = tmp_path / "limited.yaml"
    config.write_text(STUDY.replace("DP", str(dp_size)))
    command = [sys.executable, "-m", "dsabench", "sweep", str(config), "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "; limited by running requests: a rank runs 1 at once, its most" in done.stderr
    assert "limit under crowd: default: running requests" in " ".join(done.stdout.split())
    records = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    limits = {1: set(), 16: set()}
    for record in records:
        found = record["outcome"].get("bottleneck", {})
        limits[record["trial"]["runtime"]["knobs"]["pp_max_micro_batch_size"]].add(found.get("limit"))
    assert limits[1] == {"running_requests"}
    assert limits[16] <= {None, "load"}  # a short one cannot be told
    told = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=True).stdout
    )
    (load,) = told["limits"]
    assert (load["workload"], load["default"]["limit"]) == ("crowd", "running_requests")
