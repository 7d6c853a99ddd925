"""`dsabench accept`: loads and evals of each server once, in any number of runs, and a page beside published figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from dsabench.results.journal import read_journal
from studies import SHORT_EVAL

pytestmark = pytest.mark.slow

CONFIG = """
name: node
runtime:
  kind: reference
  model: tiny
  base: {kv_cache_dtype: bfloat16, context_length: LENGTH}
workloads:
  - {name: one, dataset: random-ids, input_len: 48, output_len: 4, num_prompts: 12, max_concurrency: 2}
objective: {metric: output_throughput_tok_s, direction: maximize}
accept:
  - {name: plain, base: {context_length: 1024}, beside: {one: b200-latency}, evals: [EVAL]}
  - name: fp8
    base: {kv_cache_dtype: fp8_e4m3}
    workloads:
      - {name: two, dataset: random-ids, input_len: 96, output_len: 4, num_prompts: 12, max_concurrency: 4}
    evals: [EVAL]
"""


def accept(config: Path, folder: Path, *words: str, code: int = 0) -> dict:
    command = [sys.executable, "-m", "dsabench", "accept", str(config), "--results", str(folder), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_a_server_that_fails_is_named_and_is_all_that_a_second_run_does(tmp_path: Path) -> None:
    eval_, config, folder = tmp_path / "short.yaml", tmp_path / "node.yaml", tmp_path / "out"
    eval_.write_text(SHORT_EVAL)
    text = CONFIG.replace("EVAL", str(eval_))
    config.write_text(text.replace("LENGTH", "999999"))
    prices = accept(config, folder, "--dry-run")["servers"]
    assert [(one["server"], one["loads"], one["evals"]) for one in prices] == [
        ("plain", 1, ["short"]),
        ("fp8", 1, ["short"]),
    ]
    assert not folder.exists()

    first = accept(config, folder, code=3)
    plain, fp8 = first["servers"]
    assert [one["score"] for one in plain["evals"]] == [0.0]
    assert plain["evals"][0]["published"] is None, "random weights are compared with no published score"
    assert plain["evals"][0]["says"] == "random weights"
    assert plain["loads"][0]["beside"]["base"] == "b200-latency"
    assert first["missing"] == ["fp8/two", "fp8/short"]
    assert fp8["loads"][0]["fault"].startswith("illegal_config: --context-length")

    config.write_text(text.replace("LENGTH", "1024"))
    second = accept(config, folder)
    assert (second["missing"], second["measured"]) == ([], 2)
    assert accept(config, folder)["measured"] == 0
    records = read_journal(folder / "journal.jsonl").records
    counted = Counter((one.study, one.trial.workload.name, one.outcome.kind) for one in records)
    assert counted == {
        ("node-plain", "one", "measured"): 1,
        ("node-plain", "short", "scored"): 1,
        ("node-fp8", "two", "failed"): 1,
        ("node-fp8", "two", "measured"): 1,
        ("node-fp8", "short", "scored"): 1,
    }
    page = (folder / "accept.md").read_text()
    assert "All is measured. No score has a published one beside it." in page
    assert "Settings that differ:" in page
    assert (folder / "accept.svg").is_file()


def test_a_config_without_servers_ends_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dsabench", "accept", "local", "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.strip().count("\n")) == (2, 0)
    assert "no key `accept`" in done.stderr
