"""`dsabench autotune` from an empty folder to a pull request, on the tiny reference model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from dsabench.autotune.stages import STAGES, read_stages
from dsabench.emit.tables import write_table
from dsabench.kernelbench.records import read as read_kernel_times
from dsabench.model.record import Record
from dsabench.results.journal import read_journal
from dsabench.results.places import find_journals
from kill_sweeps import MARK, marked
from studies import STUDY, write_study
from unit.emit.made import made_table

pytestmark = pytest.mark.slow

LONG_PREFIXES = [(4, 4100), (4, 16388), (8, 16392), (8, 32776)]
"""New tokens and KV tokens where flashmla_sparse dequantises for too long; it is the faster one of the others."""
SHAPES = [
    f"reftiny-h4-b1-q{new}-kv{kv}"
    for new, kv in (*LONG_PREFIXES, (64, 64), (256, 256), (256, 512), (512, 512), (512, 1024))
]
TUNES = f"""
autotune:
  flashmla_auto:
    base: {{kv_cache_dtype: fp8_e4m3, mha_threshold_tokens: 0, prefix_cache: false, prefill_backend: flashmla_kv}}
    workloads: [{{name: long, dataset: random-ids, input_len: 256, output_len: 1, num_prompts: 8, max_concurrency: 1}}]
    kernels: {{spread: 0.4, shapes: {json.dumps(SHAPES)}}}
  mha_threshold:
    base: {{kv_cache_dtype: bfloat16, prefill_backend: flashmla_sparse, mha_threshold_tokens: 32, prefix_cache: false}}
    workloads: [{{name: long, dataset: random-ids, input_len: 600, output_len: 1, num_prompts: 8, max_concurrency: 1}}]
    sweeps: [{{axes: {{mha_threshold_tokens: [32, 16]}}}}]
    budget: {{max_trials: 2, confirm_boots: 2}}
  proof: 2
"""
CONFIG = STUDY.replace("max_trials: 6, confirm_boots: 2", "max_trials: 4, confirm_boots: 2") + TUNES


def start(config: Path, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dsabench", "autotune", str(config), "--results", str(folder), *words]
    log = (folder.parent / "autotune.log").open("ab")
    with log:
        return subprocess.Popen(
            command, env=os.environ | {MARK: folder.name}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def run(config: Path, folder: Path, *words: str, code: int = 0) -> dict:
    command = [sys.executable, "-m", "dsabench", "autotune", str(config), "--results", str(folder), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr[-3000:]
    return json.loads(done.stdout)


def records_below(folder: Path) -> list[Record]:
    return [record for path in find_journals(folder) for record in read_journal(path).records]


def measured_once(folder: Path) -> None:
    """No trial of one journal has two records of one occasion in one round, and no kernel time stands twice."""
    for path in find_journals(folder):
        keys = Counter(record.key for record in read_journal(path).records)
        assert max(keys.values()) == 1, path
        settled = Counter((r.trial.id, r.phase, r.round, r.turn, r.boot) for r in read_journal(path).records)
        assert max(settled.values()) == 1, path
    points = Counter(one.point for one in read_kernel_times(folder / "autotune/kernels") if one.status == "ok")
    assert not points or max(points.values()) == 1


@pytest.mark.timeout(400)
def test_the_whole_loop_and_a_second_run_that_measures_nothing(tmp_path):
    config, folder = write_study(tmp_path, CONFIG), tmp_path / "results"
    first = run(config, folder)
    states = {one["name"]: one["state"] for one in first["stages"]}
    assert tuple(states) == STAGES
    assert states["sweep"] == states["doctor"] == states["plan"] == states["report"] == "done"
    assert states["hisparse"] == states["mtp"] == "skipped"
    assert states["flashmla-auto"] in {"done", "refused"}
    assert first["verdict"]
    assert (folder / "autotune/site/index.html").is_file()
    assert (folder / "autotune/autotune.md").read_text().startswith("# study: autotune")
    if first["tables"]:
        assert states["proof"] in {"done", "refused"}
        logs = [log.read_text() for log in (folder / "autotune/proof").glob("*/with/boots/*/*.log")]
        names = [Path(table).name for table in first["tables"]]
        assert all(any(name in log for log in logs) for name in names)
        without = [log.read_text() for log in (folder / "autotune/proof").glob("*/without/boots/*/*.log")]
        assert not any("DSA tuned table" in log for log in without)
    if first["pr"]:
        text = (Path(first["pr"]) / "pull-request.md").read_text()
        assert "servers with the table against servers without" in text
        assert (Path(first["pr"]) / "commits.patch").read_text().startswith("From ")
    before, count = len(records_below(folder)), len(read_stages(folder / "autotune"))
    second = run(config, folder)
    assert {one["name"]: one["state"] for one in second["stages"]} == states
    assert [one["measured"] for one in second["stages"]] == [0] * len(STAGES)
    assert (second["tables"], second["pr"]) == (first["tables"], first["pr"])
    assert len(records_below(folder)) == before
    # Only the plan says something else once everything is measured.
    assert len(read_stages(folder / "autotune")) - count <= 1
    measured_once(folder)


@pytest.mark.timeout(600)
def test_killed_in_each_stage_it_goes_on_and_measures_nothing_twice(tmp_path):
    config, folder = write_study(tmp_path, CONFIG), tmp_path / "results"
    for stage in ("sweep", "flashmla-auto", "mha-threshold", "proof"):
        process = start(config, folder)
        _wait_for(folder.parent / "autotune.log", f" {stage}\n", process)
        time.sleep(1.0)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        deadline = time.monotonic() + 20
        while marked(folder.name) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert marked(folder.name) == []
    last = run(config, folder)
    assert tuple(one["name"] for one in last["stages"]) == STAGES
    measured_once(folder)
    assert [one["measured"] for one in run(config, folder)["stages"]] == [0] * len(STAGES)


def _wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    """Until the newest run has entered the stage, or has ended without it (no table to prove)."""
    seen = log.stat().st_size if log.exists() else 0
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None:
        if log.exists() and text in log.read_text()[seen:]:
            return
        time.sleep(0.05)


def test_servers_with_a_table_follow_it_and_the_others_do_not(tmp_path):
    config, folder = write_study(tmp_path, CONFIG), tmp_path / "results"
    rule = {"form": "constant", "kernel": "flashmla_sparse"}
    about = {"runtime": "reference", "device": "CPU", "heads_per_rank": 4, "index_topk": 32}
    table = write_table(folder / "autotune/tables", made_table(rule=rule, **about))
    stages = {one["name"]: one for one in run(config, folder, "--only", "proof", "--only", "pr")["stages"]}
    assert stages["proof"]["state"] in {"done", "refused"}, "refused if this machine finds the table slower"
    assert stages["proof"]["measured"] == 4
    assert (stages["pr"]["state"] == "done") == (stages["proof"]["state"] == "done")
    proof = folder / "autotune/proof/flashmla_auto"
    for side, boots in (("with", 2), ("without", 0)):
        logs = [log.read_text() for log in (proof / side).glob("boots/*/*.log")]
        assert sum(f"DSA tuned table {proof / 'table' / table.name} decides" in log for log in logs) == boots
    kernels = {
        side: {key for r in read_journal(proof / side / "journal.jsonl").records for key in _prefill_kernels(r)}
        for side in ("with", "without")
    }
    assert kernels == {"with": {"flashmla_auto"}, "without": {"flashmla_kv"}}
    assert [one.round for one in read_journal(proof / "with/journal.jsonl").records] == [0, 1]
    again = {one["name"]: one for one in run(config, folder, "--only", "proof")["stages"]}
    assert (again["proof"]["state"], again["proof"]["measured"]) == (stages["proof"]["state"], 0)
    assert again["pr"]["state"] == stages["pr"]["state"], "as an earlier run left it"


def _prefill_kernels(record: Record) -> list[object]:
    return [record.resolved.get("prefill_backend") or record.resolved.get("dsa_prefill_backend")]


def test_a_dry_run_prices_the_stages_and_starts_nothing(tmp_path):
    config, folder = write_study(tmp_path, CONFIG), tmp_path / "results"
    prices = {one["stage"]: one for one in run(config, folder, "--dry-run")["stages"]}
    assert list(prices) == ["sweep", "flashmla-auto", "mha-threshold", "proof"]
    assert prices["sweep"]["boots"] == 8  # without a gate, the best setting that needs none is confirmed too
    assert prices["proof"]["boots"] == 8
    assert all(one["trouble"] is None for one in prices.values())
    assert not folder.exists()


def test_a_tune_that_cannot_run_is_found_before_any_boot(tmp_path):
    text = CONFIG.replace("mha_threshold_tokens: [32, 16]", "chunked_prefill_size: [128, 256]")
    config, folder = write_study(tmp_path, text), tmp_path / "results"
    found = run(config, folder, code=3)
    assert [(one["name"], one["state"]) for one in found["stages"]] == [("doctor", "done"), ("plan", "failed")]
    assert "tune mha-threshold needs sweeps with the axis mha_threshold_tokens alone" in found["stages"][1]["says"]
    assert not (folder / "journal.jsonl").exists()
